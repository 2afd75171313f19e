{{/* What every object of the chart is labelled with. Helm adds its own. */}}
{{- define "ringside.labels" -}}
app.kubernetes.io/part-of: ringside
{{- end }}

{{/* The image of a program, from `.image` (its own part of the values) and `.root`. */}}
{{- define "ringside.image" -}}
{{- with .root.Values.image.registry }}{{ . }}/{{ end }}{{ .image.repository }}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}
