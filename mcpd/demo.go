package mcpd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"interlock/mcpd/internal/endpoint"
	"interlock/status"
)

const (
	// demoLimit bounds a demo; one takes a second or two.
	demoLimit = 60 * time.Second
	// demoRounds is how often each client writes and reads its file while the
	// others do.
	demoRounds = 50
	// maxDemoBase is how long the path of the temporary directory may be for the
	// demo's socket below it to fit everywhere.
	maxDemoBase = 50
)

// Demo shows three clients on one daemon and writes what happens to w. It runs
// this program as a user would: a daemon and three bridges, in a temporary
// directory of its own, with no configuration. All of it is gone when Demo
// returns. What the text claims has been checked: a claim that does not hold is
// the error.
func Demo(ctx context.Context, w io.Writer) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	return demonstrate(ctx, w, program)
}

// demonstrate is Demo with the program named.
func demonstrate(ctx context.Context, w io.Writer, program string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, demoLimit)
	defer cancel()
	began := time.Now()
	d, err := newDemo(w, program)
	if err != nil {
		return fmt.Errorf("preparing the demo: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.daemonLog())
		}
		err = errors.Join(err, d.clean(context.WithoutCancel(ctx)))
	}()
	for _, act := range []func(context.Context) error{
		d.start, d.connect, d.useOneID, d.useItTogether, d.takeTurns, d.leaveDirectory, d.showStatus, d.disconnect, d.stop,
	} {
		if err := act(ctx); err != nil {
			return fmt.Errorf("demonstrating: %w", err)
		}
	}
	d.say("%d claims checked in %v\n", d.checked, time.Since(began).Round(100*time.Millisecond))
	return d.writeErr
}

// demo is one run of the demo.
type demo struct {
	w        io.Writer
	writeErr error // the first of w
	checked  int   // claims that held

	program string
	dir     string // holds everything else
	work    string // working directory of the clients
	place   Place
	env     []string // of daemon and clients

	clients []*demoClient
}

// newDemo makes the directory of a demo, and in it a directory for the clients
// to work in, with a file beside that is none of their business.
func newDemo(w io.Writer, program string) (*demo, error) {
	base := os.TempDir()
	if len(base) > maxDemoBase {
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, "interlock-demo-")
	if err != nil {
		return nil, err
	}
	d := &demo{w: w, program: program, dir: dir, work: filepath.Join(dir, "work"), place: Place{Dir: filepath.Join(dir, "daemon")}}
	d.env = append(demoEnv(os.Environ()), "INTERLOCK_DIR="+d.place.Dir, "XDG_CONFIG_HOME="+filepath.Join(dir, "config"))
	err = errors.Join(os.Mkdir(d.work, 0o700), os.WriteFile(filepath.Join(dir, "private.txt"), []byte(demoSecret), 0o600))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	d.say("One daemon and three clients, all in %s, which is removed at the end.\n\n", dir)
	return d, nil
}

// demoSecret is what the file outside the clients' directory holds.
const demoSecret = "not for the clients"

// demoEnv is the environment less what would lead to the user's own daemon, or
// to the service manager.
func demoEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return strings.HasPrefix(name, "INTERLOCK_") || strings.HasPrefix(name, "XDG_") || strings.HasPrefix(name, "LISTEN_") ||
			slices.Contains([]string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "CLAUDE_PROJECT_DIR"}, name)
	})
}

func (d *demo) say(format string, args ...any) {
	if _, err := fmt.Fprintf(d.w, format, args...); err != nil && d.writeErr == nil {
		d.writeErr = fmt.Errorf("writing: %w", err)
	}
}

// claim says the claim if it holds. Detail is what speaks against one that does
// not.
func (d *demo) claim(holds bool, detail any, format string, args ...any) error {
	claim := fmt.Sprintf(format, args...)
	if !holds {
		return fmt.Errorf("this does not hold: %s: %v", claim, detail)
	}
	d.checked++
	d.say("ok: %s\n", claim)
	return nil
}

// run runs the program as a user would, and shows the command and its output as
// far as show lets it.
func (d *demo) run(ctx context.Context, show func([]byte) []byte, args ...string) error {
	d.say("$ interlock %s\n", strings.Join(args, " "))
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, d.program, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = d.env, d.dir, &out, &errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running interlock %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	d.say("%s", show(out.Bytes()))
	return nil
}

func whole(output []byte) []byte { return output }

// start starts the daemon.
func (d *demo) start(ctx context.Context) error {
	if err := d.run(ctx, whole, "daemon", "start"); err != nil {
		return err
	}
	paths, err := d.place.paths()
	if err != nil {
		return err
	}
	info, err := os.Stat(paths.Socket)
	if err != nil {
		return err
	}
	return d.claim(info.Mode() == fs.ModeSocket|0o600, info.Mode(), "it listens on daemon/%s, which only this user may open (mode %04o)", filepath.Base(paths.Socket), info.Mode().Perm())
}

// connect connects the clients, one after the other, each with a handshake.
func (d *demo) connect(ctx context.Context) error {
	d.say("\nThree clients run this, in one working directory:\n$ interlock connect --with-leases local\n")
	for _, name := range []string{"anna", "ben", "carol"} {
		c, err := startDemoClient(ctx, name, d.program, d.work, d.env)
		if err != nil {
			return err
		}
		d.clients = append(d.clients, c)
		if err := c.initialize(); err != nil {
			return err
		}
	}
	s, err := Status(ctx, d.place)
	if err != nil {
		return err
	}
	return d.claim(s.ClientSessions == len(d.clients), s.ClientSessions, "one daemon (pid %d) has %d sessions", s.PID, s.ClientSessions)
}

// useOneID has all clients send a request with one id before any of them reads
// an answer.
func (d *demo) useOneID(context.Context) error {
	d.say("\nAll three send a request with the id 1 before one of them reads an answer.\n")
	for _, c := range d.clients {
		call := c.write(c.name + " was here")
		d.say("%-5s -> id 1  %s\n", c.name, call)
		if err := c.send(call); err != nil {
			return err
		}
	}
	var wrong []string
	for _, c := range d.clients {
		answer, err := c.receive()
		if err != nil {
			return err
		}
		d.say("%-5s <- id 1  %s\n", c.name, answer)
		if answer.refused || !strings.Contains(answer.text, c.file()) {
			wrong = append(wrong, c.name)
		}
	}
	return d.claim(len(wrong) == 0, wrong, "each has the answer to its own request")
}

// useItTogether has all clients make many calls at the same time.
func (d *demo) useItTogether(ctx context.Context) error {
	d.say("\nAll at once, each writes its file and reads it back, %d times, always with the id 1.\n", demoRounds)
	group, _ := errgroup.WithContext(ctx)
	for _, c := range d.clients {
		group.Go(c.writeAndRead)
	}
	err := group.Wait()
	return d.claim(err == nil, err, "%d calls, and every client has read what it had written", 2*demoRounds*len(d.clients))
}

// leaveDirectory has a client ask for a file outside its directory.
func (d *demo) leaveDirectory(context.Context) error {
	c := d.clients[2]
	outside := demoCall{Name: "read_file", Arguments: demoArguments{Path: "../private.txt"}}
	d.say("\n%s asks for a file outside its working directory.\n%-5s -> id 1  %s\n", c.name, c.name, outside)
	answer, err := c.call(outside)
	if err != nil {
		return err
	}
	d.say("%-5s <- id 1  %s\n", c.name, answer)
	content, err := os.ReadFile(filepath.Join(d.dir, "private.txt"))
	if err != nil {
		return err
	}
	held := answer.refused && string(content) == demoSecret && !strings.Contains(answer.text, demoSecret)
	return d.claim(held, answer, "the file is there, and %s is refused", c.name)
}

// showStatus shows the sessions.
func (d *demo) showStatus(ctx context.Context) error {
	d.say("\n")
	err := d.run(ctx, sessionTable, "daemon", "status")
	if err != nil {
		return err
	}
	s, err := Status(ctx, d.place)
	if err != nil {
		return err
	}
	same := slices.EqualFunc(s.Sessions, d.clients, func(s status.Session, c *demoClient) bool {
		return s.Client.Name == c.name && s.PID == c.pid() && s.Server == "local"
	})
	return d.claim(same, s.Sessions, "the sessions are those of anna, ben and carol")
}

// sessionTable is the part of the status that lists the sessions.
func sessionTable(output []byte) []byte {
	for _, part := range bytes.SplitAfter(output, []byte("\n\n")) {
		if bytes.HasPrefix(part, []byte("SESSION")) {
			return append(bytes.TrimSpace(part), '\n')
		}
	}
	return nil
}

// disconnect has one client leave. The others go on.
func (d *demo) disconnect(ctx context.Context) error {
	leaver := d.clients[2]
	d.say("\n%s disconnects.\n", leaver.name)
	rest, err := leaver.leave()
	if err := d.claim(err == nil && len(rest) == 0, fmt.Sprintf("%v, %q", err, rest), "it got nothing that was not an answer to it"); err != nil {
		return err
	}
	for {
		s, err := Status(ctx, d.place)
		if err != nil {
			return err
		}
		if s.ClientSessions == len(d.clients)-1 {
			break
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("awaiting the end of the session of %s: %w", leaver.name, err)
		}
	}
	for _, c := range d.clients[:2] {
		if err := c.writeAndRead(); err != nil {
			return err
		}
	}
	return d.claim(true, nil, "its session is over, and the others' go on")
}

// stop stops the daemon and shows that nothing is left.
func (d *demo) stop(ctx context.Context) error {
	d.say("\n")
	if err := d.run(ctx, whole, "daemon", "stop"); err != nil {
		return err
	}
	for _, c := range d.clients {
		c.leave() // how a bridge ends without a daemon is not the matter here
	}
	paths, err := d.place.paths()
	if err != nil {
		return err
	}
	held, err := endpoint.Held(paths)
	left := strings.Join(exist(paths.Socket, paths.Status), " ")
	if err := d.claim(!held && err == nil && left == "", fmt.Sprintf("lock held: %v, %v; there is still: %s", held, err, left), "the daemon's lock is free; socket and status file are gone"); err != nil {
		return err
	}
	processes := demoProcesses(d.dir)
	for range 100 { // the daemon's helper may outlive it by a moment
		if len(processes) == 0 || pause(ctx, 10*time.Millisecond) != nil {
			break
		}
		processes = demoProcesses(d.dir)
	}
	if err := d.claim(len(processes) == 0, processes, "no process of the demo is left"); err != nil {
		return err
	}
	err = os.RemoveAll(d.dir)
	return d.claim(err == nil && len(exist(d.dir)) == 0, err, "no file of the demo is left")
}

// daemonLog is the end of the daemon's log, as an error that explains another.
func (d *demo) daemonLog() error {
	const enough = 4 << 10
	text, err := os.ReadFile(filepath.Join(d.place.Dir, "daemon.log"))
	if err != nil || len(text) == 0 {
		return nil
	}
	return fmt.Errorf("the daemon's log ends with:\n%s", text[max(0, len(text)-enough):])
}

// clean ends and removes what a demo that has failed has left.
func (d *demo) clean(ctx context.Context) error {
	for _, c := range d.clients {
		c.kill()
	}
	if len(exist(d.dir)) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, demoLimit)
	defer cancel()
	if err := Stop(ctx, d.place, StopOptions{}); err != nil && !errors.Is(err, ErrNotRunning) {
		return fmt.Errorf("stopping the demo's daemon in %s: %w", d.dir, err)
	}
	return os.RemoveAll(d.dir)
}

// exist returns those of the paths at which there is something.
func exist(paths ...string) []string {
	return slices.DeleteFunc(paths, func(path string) bool {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// demoProcesses returns the processes that have the demo's directory in their
// environment, as all have that come from it. Without /proc it finds none.
func demoProcesses(dir string) []string {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(files, func(file string) bool {
		env, err := os.ReadFile(file)
		return err != nil || !bytes.Contains(env, []byte(dir))
	})
}
