package endpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestLocate(t *testing.T) {
	working := t.TempDir()
	t.Chdir(working)
	for _, test := range []struct {
		name        string
		env         string // NAME=value, separated by spaces
		opt         Options
		dir, socket string
		status      string // if moved
	}{
		{"home", "HOME=/home/u", Options{}, "/home/u/.local/state/interlock", "", ""},
		{"state home", "HOME=/home/u XDG_STATE_HOME=/state", Options{}, "/state/interlock", "", ""},
		{"relative state home is ignored", "HOME=/home/u XDG_STATE_HOME=state", Options{}, "/home/u/.local/state/interlock", "", ""},
		{"own variable", "HOME=/home/u XDG_STATE_HOME=/state INTERLOCK_DIR=/il/", Options{}, "/il", "", ""},
		{"relative variable", "INTERLOCK_DIR=il", Options{}, working + "/il", "", ""},
		{"dir", "INTERLOCK_DIR=/il", Options{Dir: "a//b/../c/"}, working + "/a/c", "", ""},
		{"socket alone", "INTERLOCK_DIR=/il", Options{Socket: "/s/x.sock"}, "/s", "/s/x.sock", ""},
		{"relative socket alone", "", Options{Socket: "x.sock"}, working, working + "/x.sock", ""},
		{"socket and dir", "", Options{Dir: "/d", Socket: "/s/x.sock"}, "/d", "/s/x.sock", ""},
		{"status", "", Options{Dir: "/d", Status: "st.json"}, "/d", "", working + "/st.json"},
	} {
		t.Run(test.name, func(t *testing.T) {
			env := func(name string) string {
				for _, entry := range strings.Fields(test.env) {
					if value, found := strings.CutPrefix(entry, name+"="); found {
						return value
					}
				}
				return ""
			}
			got, err := Locate(env, test.opt)
			if err != nil {
				t.Fatal(err)
			}
			want := Paths{
				Dir: test.dir, Socket: test.dir + "/interlock.sock",
				Status: test.dir + "/daemon.json", Recovery: test.dir + "/daemon.recovery.json",
				Journal: test.dir + "/daemon.journal", Log: test.dir + "/daemon.log",
				Lock: test.dir + "/daemon.lock", Servers: test.dir + "/servers",
			}
			if test.socket != "" {
				want.Socket = test.socket
			}
			if test.status != "" {
				want.Status = test.status
			}
			if got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestLocateFails(t *testing.T) {
	for name, env := range map[string]string{"unset": "", "relative": "home"} {
		if p, err := Locate(func(v string) string {
			if v == "HOME" {
				return env
			}
			return ""
		}, Options{}); err == nil || !strings.Contains(err.Error(), "HOME") {
			t.Errorf("HOME %s: got %v, %v", name, p, err)
		}
	}
	if _, err := Locate(noEnv, Options{Dir: "/a\x00b"}); err == nil {
		t.Error("a NUL byte was accepted")
	}
}

// A directory of every length works, or is refused before anything is made with
// the length and the limit.
func TestPathLengths(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "é ") // a blank and a letter of two bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	link := base + "l" // the home may be a link
	if err := os.Symlink(base, link); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(link)
	worked, refused := 0, 0
	for length := 1; length <= 400; length++ {
		dir := link
		for rest := length; rest > 0; rest -= 200 {
			dir += "/" + strings.Repeat("d", min(rest, 199))
		}
		p, err := Locate(noEnv, Options{Dir: dir + "/"})
		if size := len(dir) + len("/interlock.sock"); size > maxSocketPath {
			refused++
			wantCode(t, err, CodeTooLong)
			if text := fmt.Sprint(err); !strings.Contains(text, fmt.Sprint(size)) || !strings.Contains(text, fmt.Sprint(maxSocketPath)) {
				t.Fatalf("the refusal names not length %d and limit %d: %s", size, maxSocketPath, text)
			}
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("%q was made", dir)
			}
			continue
		}
		worked++
		if err != nil {
			t.Fatal(err)
		}
		if err := Prepare(p); err != nil {
			t.Fatal(err)
		}
		serveOnce(t, p)
	}
	if worked < 30 || refused < 250 {
		t.Errorf("%d lengths worked and %d were refused", worked, refused)
	}
}

func serveOnce(t *testing.T, p Paths) {
	t.Helper()
	lock, err := Acquire(p)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	listener, err := Listen(p, lock)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := Dial(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestServerLog(t *testing.T) {
	p := Paths{Servers: "/d/servers"}
	for name, want := range map[string]string{
		"git":         "git.log",
		"a_b-C9":      "a_b-C9.log",
		"../../x":     "%2E%2E%2F%2E%2E%2Fx.log",
		"":            ".log",
		"é\x00":       "%C3%A9%00.log",
		"a%2Fb":       "a%252Fb.log",
		"daemon.json": "daemon%2Ejson.log",
	} {
		if got := p.ServerLog(name); got != "/d/servers/"+want {
			t.Errorf("the log of %q is %q, want %q", name, got, want)
		}
	}
	if got := filepath.Base(p.ServerLog(strings.Repeat("a", 120))); got != strings.Repeat("a", 120)+".log" {
		t.Errorf("a name of 120 bytes is not kept: %q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		one := rapid.String().Draw(t, "one")
		two := rapid.OneOf(rapid.String(), rapid.Just(strings.Repeat(one, 50)), rapid.Just(strings.Repeat(one, 50)+"x")).Draw(t, "two")
		pathOne, pathTwo := p.ServerLog(one), p.ServerLog(two)
		if one != two && pathOne == pathTwo {
			t.Fatalf("%q and %q share %q", one, two, pathOne)
		}
		if filepath.Dir(pathTwo) != p.Servers || len(filepath.Base(pathTwo)) > 160 {
			t.Fatalf("%q leads to %q", two, pathTwo)
		}
	})
}
