package status

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.json")
	whole := encoded(t, full())
	var version *VersionError
	tests := []struct {
		name, text string
		check      func(Snapshot, error) bool
	}{
		{"whole", whole, func(s Snapshot, err error) bool {
			return err == nil && s.PID == 4242 && len(s.Sessions) == 2 && s.Identity.SocketInode == 1<<63+1
		}},
		{"newer writer", strings.Replace(whole, "{", `{"added": [1], "sessionsByServer": {"git": 1},`, 1), func(s Snapshot, err error) bool {
			return err == nil && s.PID == 4242
		}},
		{"older writer", `{"protocolVersion": 1, "state": "running", "pid": 7, "socket": "/s"}`, func(s Snapshot, err error) bool {
			return err == nil && s.PID == 7 && s.Sessions == nil
		}},
		{"another version", `{"protocolVersion": 2, "pid": "seven"}`, func(_ Snapshot, err error) bool {
			return errors.As(err, &version) && version.Version == 2 && strings.Contains(err.Error(), "version 2") && strings.Contains(err.Error(), "version 1")
		}},
		{"no version", `{"pid": 7, "socket": "/s"}`, damaged},
		{"no pid", `{"protocolVersion": 1, "socket": "/s"}`, damaged},
		{"no socket", `{"protocolVersion": 1, "pid": 7}`, damaged},
		{"wrong type", `{"protocolVersion": 1, "pid": "7", "socket": "/s"}`, damaged},
		{"empty", "", damaged},
		{"NULs", strings.Repeat("\x00", 4096), damaged},
		{"garbage behind", whole + "}", damaged},
		{"other JSON", `[1]`, damaged},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			writeFile(t, path, tt.text)
			if s, err := Read(path); !tt.check(s, err) {
				t.Errorf("Read = %+v, %v", s, err)
			}
		})
	}
}

func damaged(_ Snapshot, err error) bool { return errors.Is(err, ErrDamaged) }

func TestDecodeTruncated(t *testing.T) {
	whole := strings.TrimSpace(encoded(t, full()))
	for i := range whole {
		if _, err := decode("daemon.json", []byte(whole[:i])); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut after %d bytes: %v", i, err)
		}
	}
}

func TestReadWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	fifo, link, file := filepath.Join(dir, "fifo"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	writeFile(t, file, encoded(t, full()))
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, fifo, link} {
		if _, err := Read(path); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Read(%q) = %v", path, err)
		}
	}
	if _, err := Read(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Read of nothing = %v", err)
	}
}

// TestReadersNeverSeeHalf has readers look at a file that is replaced as fast
// as it can be, by snapshots of different sizes.
func TestReadersNeverSeeHalf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.json")
	var texts [][]byte
	for n := range 4 {
		s := full()
		s.Sessions = numbered(n*50, func(int) Session { return s.Sessions[0] })
		s.ClientSessions = len(s.Sessions)
		data, err := encode(s, MaxBytes)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, data)
	}
	if err := replaceFile(path, texts[0]); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for reads := 0; ; reads++ {
				select {
				case <-stop:
					if reads == 0 {
						t.Error("a reader read nothing")
					}
					return
				default:
				}
				s, err := readOnce(path)
				if err != nil || s.ClientSessions != len(s.Sessions) || s.ClientSessions%50 != 0 {
					t.Errorf("read %d sessions of %d, %v", len(s.Sessions), s.ClientSessions, err)
					return
				}
			}
		})
	}
	for i, end := 0, time.Now().Add(300*time.Millisecond); time.Now().Before(end); i++ {
		if err := replaceFile(path, texts[i%len(texts)]); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	readers.Wait()
}

func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	path, temp, victim := filepath.Join(dir, "daemon.json"), filepath.Join(dir, ".daemon.json.tmp"), filepath.Join(dir, "victim")
	writeFile(t, victim, "precious")
	setups := map[string]func() error{
		"nothing there":            func() error { return nil },
		"left by a crash":          func() error { return os.WriteFile(temp, []byte("half a sta"), 0o644) },
		"link in the way":          func() error { return os.Symlink(victim, temp) },
		"status readable by all":   func() error { return os.WriteFile(path, []byte("{}"), 0o644) },
		"status is a link":         func() error { return os.Symlink(victim, path) },
		"status has another name":  func() error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Link(path, path+".2")) },
		"fifo in the way":          func() error { return syscall.Mkfifo(temp, 0o600) },
		"empty directory in place": func() error { return os.Mkdir(temp, 0o700) },
	}
	for name, setup := range setups {
		t.Run(name, func(t *testing.T) {
			if err := setup(); err != nil {
				t.Fatal(err)
			}
			if err := replaceFile(path, []byte("new")); err != nil {
				t.Fatal(err)
			}
			info, err := os.Lstat(path)
			if err != nil || info.Mode() != 0o600 || readText(t, path) != "new" {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
			if _, err := os.Lstat(temp); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the temporary file is left: %v", err)
			}
			if readText(t, victim) != "precious" {
				t.Error("another file was written")
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestCheckOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.json")
	tests := []struct {
		text    string
		foreign bool
	}{
		{`{"protocolVersion": 1, "socket": "/a"}`, false},
		{`{"protocolVersion": 1, "socket": "/b"}`, true},
		{`{"protocolVersion": 9, "socket": "/b", "pid": "x"}`, true},
		{`{"protocolVersion": 1, "socket": "/a", "identity": {"instance": "ours"}}`, false},
		{`{"protocolVersion": 1, "socket": "/a", "identity": {"instance": "another"}}`, false},
		{fmt.Sprintf(`{"socket": "/a", "pid": %d, "identity": {"instance": "another"}}`, os.Getppid()), true},
		{fmt.Sprintf(`{"socket": "/a", "pid": %d, "identity": {"instance": "another"}}`, os.Getpid()), false},
		{`{"protocolVersion": 1}`, false},
		{`{"protoc`, false},
		{"", false},
	}
	for _, tt := range tests {
		writeFile(t, path, tt.text)
		if err := checkOwner(path, owner{socket: "/a", instance: "ours"}); errors.Is(err, ErrForeign) != tt.foreign || !tt.foreign && err != nil {
			t.Errorf("%s: %v", tt.text, err)
		}
	}
}
