package doctor

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// logsAnswer is what `daemon logs --json` prints.
type logsAnswer struct {
	Status    string
	Path      string
	Content   string
	Truncated bool
}

func (w *ward) logs(flags string) (a logsAnswer, raw string) {
	w.t.Helper()
	raw = w.do("interlock daemon logs --json " + flags)
	w.must(json.Unmarshal([]byte(raw), &a))
	return a, raw
}

// hostile is what a terminal would act on: colours, its title, its clipboard, the
// cursor, and text that reads backwards.
const hostile = "\x1b[31mred\x1b]0;title\x07\x1b]52;c;ZXZpbA==\x1b\\\r\b\x7f\x9b2J\u009b1m\u202eevil\u2066x\u2069\x00end\xff\n"

// harmless fails the test if text holds what a terminal would act on.
func harmless(t *testing.T, what, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Fatalf("%s is not UTF-8", what)
	}
	for i, r := range text {
		bidi := r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
		if r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || bidi {
			t.Fatalf("%s has %U at %d: %q", what, r, i, text[max(0, i-20):i+1])
		}
	}
	if !strings.Contains(text, "end") {
		t.Errorf("%s has lost text: %q", what, text)
	}
}

// TestHostileLog shows a log whose every line is an attack on a terminal: through a
// pipe, on a terminal, as JSON, and while it is followed.
func TestHostileLog(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.stopped()
	w.must(os.WriteFile(w.path("daemon.log"), []byte(strings.Repeat(hostile, 5000)), 0o600))

	harmless(t, "the pipe", w.do("interlock daemon logs"))
	harmless(t, "the terminal", strings.ReplaceAll(w.onTerminal("interlock daemon logs -n 20"), "\r\n", "\n"))
	answer, raw := w.logs("")
	if strings.ContainsAny(raw, "\x1b\x07\x7f\u009b\u202e\u2066\u2069") {
		t.Error("the JSON holds what a terminal acts on")
	}
	if answer.Status != "available" || !answer.Truncated || len(answer.Content) > 64<<10 || len(answer.Content) < 60<<10 || !utf8.ValidString(answer.Content) {
		t.Errorf("%s, truncated %v, %d bytes", answer.Status, answer.Truncated, len(answer.Content))
	}
	if want := strings.ToValidUTF8(hostile, "\uFFFD"); !strings.HasSuffix(answer.Content, want) {
		t.Errorf("the JSON means %q", answer.Content[max(0, len(answer.Content)-100):])
	}

	follow := w.command("exec interlock daemon logs -f -n 1")
	out, err := follow.StdoutPipe()
	w.must(err)
	w.must(follow.Start())
	lines := bufio.NewReader(out)
	for range 2 { // the last line, and one that is added
		line, err := lines.ReadString('\n')
		w.must(err)
		harmless(t, "what is followed", line)
		f, err := os.OpenFile(w.path("daemon.log"), os.O_WRONLY|os.O_APPEND, 0)
		w.must(err)
		_, err = f.WriteString(hostile)
		w.must(err)
		f.Close()
	}
	w.must(follow.Process.Signal(os.Interrupt))
	io.Copy(io.Discard, lines)
	if err := follow.Wait(); err != nil {
		t.Errorf("the end of following: %v", err)
	}
}

// onTerminal runs a command line on a terminal and returns what appears there.
func (w *ward) onTerminal(line string) string {
	w.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	w.must(err)
	defer master.Close()
	w.must(unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	w.must(err)
	slave, err := os.OpenFile("/dev/pts/"+string(rune('0'+number%10)), os.O_RDWR|syscall.O_NOCTTY, 0)
	if number > 9 {
		w.t.Skip("many terminals")
	}
	w.must(err)
	cmd := w.command(line)
	cmd.Stdout, cmd.Stderr = slave, slave
	w.must(cmd.Start())
	slave.Close()
	shown, _ := io.ReadAll(master) // it ends with an error, as terminals do
	w.must(cmd.Wait())
	return string(shown)
}

// TestServerLog shows what a server has written to its standard error, and only
// that server's.
func TestServerLog(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.configure(`{"mcpServers": {"a/b c": {"command": "sh", "args": ["-c", "echo 'I am a'; exit 1"]}, "b": {"command": "sh", "args": ["-c", "exit 1"]}}}`)
	if answer, _ := w.logs("--server 'a/b c'"); answer.Status != "unavailable" || answer.Content != "" || answer.Truncated || answer.Path == "" {
		t.Errorf("no log yet: %+v", answer)
	}
	_, errs, code := w.run("interlock daemon logs --server b")
	if code != 0 || !strings.Contains(errs, "there is no log at") {
		t.Errorf("no log yet: exit code %d\n%s", code, errs)
	}
	w.configure(`{"mcpServers": {"a/b c": {"command": "sh", "args": ["-c", "echo 'I am a' >&2; exit 1"]}}}`)
	w.connect("'a/b c'").leave()
	eventually(t, "the server's words are in its log", func() error {
		if answer, _ := w.logs("--server 'a/b c'"); !strings.Contains(answer.Content, "I am a") {
			return io.ErrNoProgress
		}
		return nil
	})
	if answer, _ := w.logs(""); strings.Contains(answer.Content, "I am a\\n") {
		t.Errorf("the daemon's own log has the server's words: %s", answer.Content)
	}
}

// TestWatch shows the status again and again, through the daemon's end and return.
func TestWatch(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	watch := w.command("exec interlock daemon status --watch --json")
	out, err := watch.StdoutPipe()
	w.must(err)
	w.must(watch.Start())
	w.running()
	answers := json.NewDecoder(out)
	for _, pid := range []int{w.status().PID, 0} {
		if pid == 0 {
			w.do("interlock daemon restart")
			pid = w.status().PID
		}
		for deadline := time.Now().Add(20 * time.Second); ; {
			var s daemonStatus
			w.must(answers.Decode(&s))
			if s.PID == pid {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("it shows %d, want %d", s.PID, pid)
			}
		}
	}
	w.must(watch.Process.Signal(os.Interrupt))
	io.Copy(io.Discard, out)
	if err := watch.Wait(); err != nil {
		t.Errorf("the end of watching: %v", err)
	}
}

// TestUnit has systemd itself, where it is installed, verify the printed files.
func TestUnit(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	out := w.do("interlock daemon unit")
	service, socket, found := strings.Cut(out, "# ~/.config/systemd/user/interlock.socket\n")
	if !found || !strings.Contains(service, "ExecStart=") || !strings.Contains(socket, "ListenStream="+w.path("interlock.sock")+"\n") {
		t.Fatalf("unit:\n%s", out)
	}
	if agent := w.do("interlock daemon unit --launchd"); !strings.HasPrefix(agent, "<?xml") || !strings.Contains(agent, "<string>"+strings.TrimSuffix(w.path("/interlock.sock"), "/interlock.sock")+"</string>") {
		t.Errorf("launchd:\n%s", agent)
	}
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return
	}
	for name, text := range map[string]string{"interlock.service": service, "interlock.socket": socket} {
		w.must(os.WriteFile(w.base+"/"+name, []byte(text), 0o600))
	}
	cmd := exec.Command(verify, "verify", "--user", w.base+"/interlock.service", w.base+"/interlock.socket")
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+w.base)
	verdict, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(verdict), "Failed to initialize manager") {
		t.Errorf("systemd-analyze: %v\n%s", err, verdict)
	}
}
