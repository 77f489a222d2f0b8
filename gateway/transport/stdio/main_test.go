package stdio_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

// TestMain is also the supervisor, and the programs that the tests run.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "supervise":
			os.Exit(stdio.Supervise(os.Args[2:]))
		case "gateway":
			holdUntilKilled()
		case "program":
			play(os.Args[2:])
			os.Exit(0)
		}
	}
	goleak.VerifyTestMain(m)
}

// holdUntilKilled is a gateway that runs one program and says its processes: that of the
// supervisor, and that of a daemon which the program left behind.
func holdUntilKilled() {
	host, _ := stdio.NewHost(stdio.Deps{Supervisor: []string{os.Args[0], "supervise"}, Logger: slog.New(slog.DiscardHandler)})
	p, err := host.Start(context.Background(), stdio.Owner{Agent: "files"}, stdio.Program{Command: []string{os.Args[0], "program", "fork", "stubborn"}}, 1024)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return
	}
	daemon, _ := p.Receive()
	fmt.Fprintln(os.Stdout, host.List()[0].PID, string(daemon))
	select {}
}

// play is a program that does what its arguments and its lines say.
func play(arguments []string) {
	for _, word := range arguments {
		obey(word)
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		obey(in.Text())
	}
}

func obey(line string) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "say":
		fmt.Fprintln(os.Stdout, rest)
	case "open": // descriptors, as the files that they mean
		var open []string
		for n := range 1024 {
			if file, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(n)); err == nil {
				open = append(open, file)
			}
		}
		fmt.Fprintln(os.Stdout, strings.Join(open, "|"))
	case "err":
		fmt.Fprintln(os.Stderr, rest)
	case "env":
		fmt.Fprintln(os.Stdout, strings.Join(os.Environ(), "|"))
	case "where":
		dir, _ := os.Getwd()
		fmt.Fprintln(os.Stdout, dir)
	case "flood":
		n, _ := strconv.Atoi(rest)
		for i := range n {
			fmt.Fprintln(os.Stderr, "line", i)
		}
		fmt.Fprintln(os.Stdout, "flooded")
	case "long":
		n, _ := strconv.Atoi(rest)
		fmt.Fprintln(os.Stdout, strings.Repeat("x", n))
	case "exit":
		fmt.Fprintln(os.Stderr, "goodbye")
		code, _ := strconv.Atoi(rest)
		os.Exit(code)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		select {}
	case "fork": // as a daemon does: a child in a session of its own, whose parent is gone
		cmd := exec.Command(os.Args[0], "program", "stubborn")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		_ = cmd.Start()
		fmt.Fprintln(os.Stdout, cmd.Process.Pid)
	case "eat":
		n, _ := strconv.Atoi(rest)
		eaten := make([]byte, n<<20)
		for i := range eaten {
			eaten[i] = byte(i)
		}
		fmt.Fprintln(os.Stdout, len(eaten), eaten[len(eaten)-1])
		select {}
	case "bomb":
		for range 200 {
			cmd := exec.Command("sleep", "600")
			_ = cmd.Start()
		}
		select {}
	case "shut":
		_ = os.Stdin.Close()
		fmt.Fprintln(os.Stdout, "shut")
		select {}
	case "mcp":
		serveMCP()
		os.Exit(0)
	case "deaf":
		select {}
	}
}
