package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"unsafe"
)

// size says how large the terminal is, now and after each change, until a line comes on stdin.
func size([]string) error {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	line := make(chan error)
	go func() {
		_, err := os.Stdin.Read(make([]byte, 1))
		line <- err
	}()
	for {
		columns, rows, err := terminal()
		if err != nil {
			return err
		}
		fmt.Println(columns, "x", rows)
		select {
		case err := <-line:
			return err
		case <-changes:
		}
	}
}

func terminal() (columns, rows uint16, err error) {
	var window struct{ rows, columns, x, y uint16 }
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, os.Stdout.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&window)))
	if errno != 0 {
		return 0, 0, errno
	}
	return window.columns, window.rows, nil
}
