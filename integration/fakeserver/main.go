package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// config is how the process behaves, calls apart.
type config struct {
	log      string
	discover string
	ping     string
	banner   bool
	once     bool
	strict   bool
	stay     bool
	child    bool
	gate     string
	pages    bool
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("fakeserver: ")
	var c config
	flag.StringVar(&c.log, "log", "", "append what happens to this `file`")
	flag.StringVar(&c.discover, "discover", "refuse", "what server/discover gets: refuse, ignore, exit, or serve (revision 2026-07-28)")
	flag.StringVar(&c.ping, "ping", "answer", "what ping gets: answer, refuse or ignore")
	flag.BoolVar(&c.banner, "banner", false, "print text that is no message on standard output first")
	flag.BoolVar(&c.once, "once", false, "exit on a second initialize")
	flag.BoolVar(&c.strict, "strict", false, "refuse requests before notifications/initialized")
	flag.BoolVar(&c.stay, "stay", false, "end neither with the input nor on SIGTERM")
	flag.BoolVar(&c.child, "child", false, "start two children that ignore SIGTERM, one of which leaves the process group")
	flag.StringVar(&c.gate, "gate", "", "answer initialize once this `file` is there")
	flag.BoolVar(&c.pages, "pages", false, "list tools in pages of one, the last with the cursor of itself")
	linger := flag.Bool("linger", false, "be the child of -child: do nothing for ever")
	flag.Parse()
	if *linger {
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
		forever()
	}
	if err := run(c, os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run serves until the input ends and the calls begun are answered.
func run(c config, in io.Reader, out *os.File) error {
	s := newServer(c, out)
	if c.log != "" {
		f, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		s.events = f
	}
	cwd, err := os.Getwd()
	if err != nil {
		return err
	}
	s.note("start", fmt.Sprintf("ppid=%d cwd=%s", os.Getppid(), cwd))
	if c.child {
		for event, leaves := range map[string]bool{"child": false, "daemonized": true} {
			if err := s.startChild(event, leaves); err != nil {
				return err
			}
		}
	}
	if c.stay {
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	}
	if c.banner {
		s.print("Fake server 1.0 starting\n\n\x1b[32mready\x1b[0m\n{\"level\":\"info\",\"msg\":\"listening\"}\n[1,2,3]\n42\n")
	}
	lines := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if line := strings.TrimRight(string(line), "\r\n"); line != "" {
			s.receive(line)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	s.note("eof", "")
	s.endOfInput()
	if c.stay {
		forever()
	}
	return nil
}

// startChild starts a process that outlives its parent unless somebody else
// ends it.
func (s *server) startChild(event string, leaves bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-linger", "-log", s.config.log)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: leaves}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.note(event, fmt.Sprint(cmd.Process.Pid))
	return nil
}

// forever does not return. Blocked for good, a process without other goroutines
// is ended by its own runtime.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}
