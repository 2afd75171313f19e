// Command guest is what runs in test pods: a static program of many small parts, in place of a shell and its tools.
package main

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

var commands = map[string]func(arguments []string) error{
	"pause": pause,
	"cat":   cat,
	"say":   say,
	"lines": lines,
	"serve": serve,
	"echo":  echo,
}

func main() {
	// Without arguments it holds a pod's namespaces.
	arguments := append(os.Args[1:], "pause")
	command, known := commands[arguments[0]]
	if !known {
		fmt.Fprintln(os.Stderr, "no such command:", arguments[0])
		os.Exit(2)
	}
	if err := command(os.Args[min(2, len(os.Args)):]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// number is the argument at that place.
func number(arguments []string, at int) (int, error) {
	if at >= len(arguments) {
		return 0, fmt.Errorf("argument %d is missing", at)
	}
	return strconv.Atoi(arguments[at])
}

// pause does nothing until it is told to end.
func pause([]string) error {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
	return nil
}

// cat copies stdin to stdout.
func cat([]string) error {
	_, err := io.Copy(os.Stdout, os.Stdin)
	return err
}

// say TEXT ERROR CODE writes to stdout and stderr, and exits with that code.
func say(arguments []string) error {
	code, err := number(arguments, 2)
	if err != nil {
		return err
	}
	fmt.Print(arguments[0])
	fmt.Fprint(os.Stderr, arguments[1])
	os.Exit(code)
	return nil
}

// write writes so many bytes, the same ones each time and no two parts alike.
func write(out io.Writer, left int) error {
	buffered := bufio.NewWriter(out)
	block := sha256.Sum256(nil)
	for left > 0 {
		count := min(left, len(block))
		if _, err := buffered.Write(block[:count]); err != nil {
			return err
		}
		left -= count
		block = sha256.Sum256(block[:])
	}
	return buffered.Flush()
}

// lines COUNT writes numbered lines to stdout.
func lines(arguments []string) error {
	count, err := number(arguments, 0)
	if err != nil {
		return err
	}
	for line := range count {
		if _, err := fmt.Println("line", line); err != nil {
			return err
		}
	}
	return nil
}

// echo repeats each line of stdin with a word before it, for ever: so an attached client knows who answers.
func echo([]string) error {
	buffer := make([]byte, 4096)
	for {
		count, err := os.Stdin.Read(buffer)
		if count > 0 {
			fmt.Printf("heard %s", buffer[:count])
		}
		if err != nil {
			return pause(nil)
		}
	}
}

// serve ECHO GIVE COUNT listens on two ports: on one it sends back what comes, on the other it sends so many bytes, and closes.
func serve(arguments []string) error {
	count, err := number(arguments, 2)
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	go listen(arguments[0], ended, func(connection net.Conn) error {
		_, err := io.Copy(connection, connection)
		return err
	})
	go listen(arguments[1], ended, func(connection net.Conn) error {
		return write(connection, count)
	})
	return <-ended
}

// listen answers each connection on its own; how one of them ends is the client's to notice.
func listen(port string, ended chan<- error, answer func(net.Conn) error) {
	listener, err := net.Listen("tcp", ":"+port)
	for err == nil {
		var connection net.Conn
		if connection, err = listener.Accept(); err == nil {
			go func() {
				defer connection.Close()
				if err := answer(connection); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			}()
		}
	}
	ended <- err
}
