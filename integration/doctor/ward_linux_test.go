package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ward is the place of a daemon that things go wrong with. Unlike a rig it
// expects nothing of the state that it is left in. Commands run as a user's do:
// by a shell, with the program in PATH and the place in the environment.
type ward struct {
	t      *testing.T
	base   string // everything lies below it
	home   string // the daemon's directory
	config string // the configuration file
}

func newWard(t *testing.T) *ward {
	t.Helper()
	base, err := os.MkdirTemp("", "il-")
	if err != nil {
		t.Fatal(err)
	}
	w := &ward{t: t, base: base, home: filepath.Join(base, "d"), config: filepath.Join(base, "interlock", "config.json")}
	w.must(os.Mkdir(filepath.Dir(w.config), 0o700))
	t.Cleanup(func() {
		eventually(t, "everything has ended", func() error {
			left := processesOf(base)
			for _, p := range left {
				syscall.Kill(p.pid, syscall.SIGKILL)
			}
			if len(left) > 0 {
				return errors.New("processes are left")
			}
			return nil
		})
		os.RemoveAll(base)
	})
	return w
}

func (w *ward) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *ward) path(name string) string { return filepath.Join(w.home, name) }

// command is a command line for the user's shell.
func (w *ward) command(line string) *exec.Cmd {
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = w.base
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "INTERLOCK_") })
	cmd.Env = append(cmd.Env, "HOME="+w.base, "XDG_CONFIG_HOME="+w.base, "INTERLOCK_DIR="+w.home,
		"PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	return cmd
}

// run runs a command line and returns what it printed, and its exit code.
func (w *ward) run(line string) (stdout, stderr string, code int) {
	w.t.Helper()
	cmd := w.command(line)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// do runs a command line that must succeed.
func (w *ward) do(line string) string {
	w.t.Helper()
	out, errs, code := w.run(line)
	if code != 0 {
		w.t.Fatalf("%s: exit code %d\n%s%s", line, code, out, errs)
	}
	return out
}

// diagnosis is what doctor answers, as far as the tests look at it.
type diagnosis struct {
	Status   string
	Detail   string
	Daemon   *daemonStatus
	Recovery *struct{ Runs []struct{ RequestID string } }
	Checks   []string
	Findings []finding

	code int // exit code
}

type daemonStatus struct {
	PID      int
	State    string
	Identity struct{ Instance string }
	Findings []finding
}

type finding struct{ Code, Severity, Title, Detail, Remedy string }

func (w *ward) doctor(flags ...string) (d diagnosis) {
	w.t.Helper()
	out, errs, code := w.run("interlock daemon doctor --json " + strings.Join(flags, " "))
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		w.t.Fatalf("doctor: %v\n%s%s", err, out, errs)
	}
	d.code = code
	return d
}

func (d diagnosis) find(code string) (finding, bool) {
	i := slices.IndexFunc(d.Findings, func(f finding) bool { return f.Code == code })
	if i < 0 {
		return finding{}, false
	}
	return d.Findings[i], true
}

// status is what the running daemon says.
func (w *ward) status() (s daemonStatus) {
	w.t.Helper()
	w.must(json.Unmarshal([]byte(w.do("interlock daemon status --json")), &s))
	return s
}

// configure writes the configuration.
func (w *ward) configure(text string) {
	w.t.Helper()
	w.must(os.WriteFile(w.config, []byte(text), 0o600))
}

// configureFake makes the server fake the only one.
func (w *ward) configureFake(flags ...string) {
	w.t.Helper()
	arguments, err := json.Marshal(append([]string{"-log", filepath.Join(w.base, "fake.log")}, flags...))
	w.must(err)
	w.configure(`{"mcpServers": {"fake": {"command": "` + filepath.Join(bin, "fakeserver") + `", "args": ` + string(arguments) + `, "annotations": "ignore"}}}`)
}

// crash kills the daemon.
func (w *ward) crash() {
	w.t.Helper()
	pid := w.status().PID
	w.must(syscall.Kill(pid, syscall.SIGKILL))
	w.ended(pid)
}

// ended waits until the process is gone.
func (w *ward) ended(pid int) {
	w.t.Helper()
	eventually(w.t, "the process has ended", func() error {
		if runs(pid) {
			return errors.New("it runs")
		}
		return nil
	})
}

// pending crashes the daemon with n calls in flight.
func (w *ward) pending(n int) {
	w.t.Helper()
	w.configureFake()
	c := w.connect("fake")
	for i := range n {
		c.send(`{"jsonrpc":"2.0","id":"held-%d","method":"tools/call","params":{"name":"hold","arguments":{"key":"k%d"}}}`, i, i)
	}
	eventually(w.t, "the server has the calls", func() error {
		log, err := os.ReadFile(filepath.Join(w.base, "fake.log"))
		if strings.Count(string(log), `"name":"hold"`) < n && err == nil {
			return errors.New("it has not")
		}
		return err
	})
	w.crash()
}

// edit replaces text in a file.
func (w *ward) edit(name, old, with string) {
	w.t.Helper()
	data, err := os.ReadFile(w.path(name))
	w.must(err)
	if !bytes.Contains(data, []byte(old)) {
		w.t.Fatalf("%s does not contain %q:\n%s", name, old, data)
	}
	w.must(os.WriteFile(w.path(name), bytes.ReplaceAll(data, []byte(old), []byte(with)), 0o600))
}

// process is what /proc says of a process.
type process struct {
	pid, parent int
	state       byte
	environment string // and arguments
}

// processes are all there are.
func processes() (list []process) {
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		panic(err) // only a bad pattern fails
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(filepath.Base(entry))
		stat, statErr := os.ReadFile(entry + "/stat")
		if err != nil || statErr != nil || pid == os.Getpid() {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		parent, err := strconv.Atoi(fields[1])
		if err != nil {
			panic(err)
		}
		environment, _ := os.ReadFile(entry + "/environ") // gone, or another user's: not ours
		arguments, _ := os.ReadFile(entry + "/cmdline")
		list = append(list, process{pid, parent, fields[0][0], string(environment) + string(arguments)})
	}
	return list
}

// processesOf are those that carry the text in their environment or arguments.
func processesOf(text string) []process {
	return slices.DeleteFunc(processes(), func(p process) bool { return !strings.Contains(p.environment, text) })
}

// runs reports whether the process is there and no zombie.
func runs(pid int) bool {
	return slices.ContainsFunc(processes(), func(p process) bool { return p.pid == pid && p.state != 'Z' })
}

// childOf is the only child of a process.
func (w *ward) childOf(pid int) int {
	w.t.Helper()
	children := slices.DeleteFunc(processes(), func(p process) bool { return p.parent != pid })
	if len(children) != 1 {
		w.t.Fatalf("process %d has %d children", pid, len(children))
	}
	return children[0].pid
}

// eventually waits until try succeeds, and fails the test if it never does.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s: %v", what, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
