module ringside.example/e2e/guest

go 1.26.0
