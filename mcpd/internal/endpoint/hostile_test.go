package endpoint

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"interlock/mcpd/internal/endpoint/private"
)

// A victim is what a planted link leads to, and must stay as it is.
type victim struct {
	path string
	mode os.FileMode
}

func newVictim(t *testing.T, mode os.FileMode) victim {
	t.Helper()
	path := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return victim{path, mode}
}

func (v victim) check(t *testing.T) {
	t.Helper()
	content, err := os.ReadFile(v.path)
	if err != nil || string(content) != "precious" {
		t.Errorf("the victim holds %q, %v", content, err)
	}
	if info, err := os.Stat(v.path); err != nil || info.Mode().Perm() != v.mode {
		t.Errorf("the victim has mode %v, %v", info.Mode(), err)
	}
}

// hostileFiles plants at path what does not belong there.
var hostileFiles = []struct {
	name  string
	plant func(path, victim string) error
	code  string // of a file that must be ours
	root  bool   // needs root to be planted
}{
	{"symbolic link", func(path, victim string) error { return os.Symlink(victim, path) }, private.CodeLink, false},
	{"dangling link", func(path, _ string) error { return os.Symlink("/nowhere/at/all", path) }, private.CodeLink, false},
	{"hard link", func(path, victim string) error { return os.Link(victim, path) }, private.CodeHardLinked, false},
	{"fifo", func(path, _ string) error { return unix.Mkfifo(path, 0o600) }, private.CodeNotRegular, false},
	{"directory", func(path, _ string) error { return os.Mkdir(path, 0o700) }, private.CodeNotRegular, false},
	{"group-writable", func(path, _ string) error { return plantFile(path, 0o620) }, private.CodeOpen, false},
	{"world-readable", func(path, _ string) error { return plantFile(path, 0o604) }, private.CodeOpen, false},
	{"another's", func(path, _ string) error {
		if err := plantFile(path, 0o600); err != nil {
			return err
		}
		return os.Chown(path, nobody, nobody)
	}, private.CodeNotOwned, true},
	{"device", func(path, _ string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, 1<<8|3) }, private.CodeNotRegular, true},
}

func plantFile(path string, mode os.FileMode) error {
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

func TestHostileLock(t *testing.T) {
	for _, hostile := range hostileFiles {
		t.Run(hostile.name, func(t *testing.T) {
			if hostile.root && os.Geteuid() != 0 {
				t.Skip("planting it needs root")
			}
			p := place(t)
			victim := newVictim(t, 0o600)
			if err := hostile.plant(p.Lock, victim.path); err != nil {
				t.Fatal(err)
			}
			_, err := Acquire(p)
			wantCode(t, err, hostile.code)
			_, err = Held(p)
			wantCode(t, err, hostile.code)
			victim.check(t)
		})
	}
}

func TestHostileSocket(t *testing.T) {
	for _, hostile := range hostileFiles {
		t.Run(hostile.name, func(t *testing.T) {
			if hostile.root && os.Geteuid() != 0 {
				t.Skip("planting it needs root")
			}
			p := place(t)
			victim := newVictim(t, 0o600)
			if err := hostile.plant(p.Socket, victim.path); err != nil {
				t.Fatal(err)
			}
			before, err := inodeAt(p.Socket)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Listen(p, acquire(t, p))
			wantCode(t, err, CodeOccupied)
			if after, err := inodeAt(p.Socket); err != nil || after != before {
				t.Errorf("what lay there was touched: %v", err)
			}
			victim.check(t)
		})
	}
	t.Run("another's socket", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("planting it needs root")
		}
		p := place(t)
		if err := unix.Mknod(p.Socket, unix.S_IFSOCK|0o600, 0); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(p.Socket, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		_, err := Listen(p, acquire(t, p))
		wantCode(t, err, CodeOccupied)
	})
}

func TestHostileDirectory(t *testing.T) {
	mkdir := func(path string, mode os.FileMode) error {
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
		return os.Chmod(path, mode)
	}
	give := func(path string) error { return os.Chown(path, nobody, nobody) }
	for _, test := range []struct {
		name  string
		plant func(dir, victim string) error
		code  string // empty: it is fine
		root  bool
	}{
		{"missing, with its parent", func(string, string) error { return nil }, "", false},
		{"ours", func(dir, _ string) error { return os.MkdirAll(dir, 0o700) }, "", false},
		{"readable by others", func(dir, _ string) error { return mkdir(dir, 0o755) }, private.CodeOpen, false},
		{"group-writable", func(dir, _ string) error { return mkdir(dir, 0o770) }, private.CodeOpen, false},
		{"like /tmp", func(dir, _ string) error { return mkdir(dir, 0o777|os.ModeSticky) }, private.CodeOpen, false},
		{"symbolic link", func(dir, _ string) error {
			if err := mkdir(dir+".real", 0o700); err != nil {
				return err
			}
			return os.Symlink(dir+".real", dir)
		}, private.CodeLink, false},
		{"file", func(dir, victim string) error { return os.Link(victim, dir) }, private.CodeNotDirectory, false},
		{"fifo", func(dir, _ string) error { return unix.Mkfifo(dir, 0o600) }, private.CodeNotDirectory, false},
		{"another's", func(dir, _ string) error {
			if err := mkdir(dir, 0o700); err != nil {
				return err
			}
			return give(dir)
		}, private.CodeNotOwned, true},
		{"its servers are a link", func(dir, victim string) error {
			if err := mkdir(dir, 0o700); err != nil {
				return err
			}
			return os.Symlink(filepath.Dir(victim), filepath.Join(dir, "servers"))
		}, private.CodeLink, false},
		{"parent is a file", func(dir, victim string) error {
			if err := os.Remove(filepath.Dir(dir)); err != nil {
				return err
			}
			return os.Link(victim, filepath.Dir(dir))
		}, private.CodeNotDirectory, false},
		{"parent writable by all", func(dir, _ string) error { return os.Chmod(filepath.Dir(dir), 0o777) }, private.CodeParent, false},
		{"parent like /tmp", func(dir, _ string) error { return os.Chmod(filepath.Dir(dir), 0o777|os.ModeSticky) }, "", false},
		{"parent writable by our group", func(dir, _ string) error { return os.Chmod(filepath.Dir(dir), 0o775) }, "", false},
		{"parent writable by another group", func(dir, _ string) error {
			if err := os.Chown(filepath.Dir(dir), -1, nobody); err != nil {
				return err
			}
			return os.Chmod(filepath.Dir(dir), 0o775)
		}, private.CodeParent, true},
		{"parent is another's", func(dir, _ string) error { return give(filepath.Dir(dir)) }, private.CodeParent, true},
		{"parent is a link of ours", func(dir, _ string) error {
			parent := filepath.Dir(dir)
			if err := os.Rename(parent, parent+".real"); err != nil {
				return err
			}
			return os.Symlink(filepath.Base(parent)+".real", parent)
		}, "", false},
		{"parent is another's link", func(dir, _ string) error {
			parent := filepath.Dir(dir)
			if err := os.Rename(parent, parent+".real"); err != nil {
				return err
			}
			if err := os.Symlink("../"+filepath.Base(filepath.Dir(parent))+"/"+filepath.Base(parent)+".real", parent); err != nil {
				return err
			}
			return os.Lchown(parent, nobody, nobody)
		}, private.CodeParent, true},
		{"parent is a link to where all may write", func(dir, _ string) error {
			parent := filepath.Dir(dir)
			if err := os.Rename(parent, parent+".real"); err != nil {
				return err
			}
			if err := os.Chmod(parent+".real", 0o777); err != nil {
				return err
			}
			return os.Symlink(parent+".real", parent)
		}, private.CodeParent, false},
		{"parent is a link to itself", func(dir, _ string) error {
			if err := os.Remove(filepath.Dir(dir)); err != nil {
				return err
			}
			return os.Symlink("parent", filepath.Dir(dir))
		}, "none", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.root && os.Geteuid() != 0 {
				t.Skip("planting it needs root")
			}
			parent := filepath.Join(shortDir(t), "parent")
			if err := os.Mkdir(parent, 0o700); err != nil {
				t.Fatal(err)
			}
			victim := newVictim(t, 0o644)
			p, err := Locate(noEnv, Options{Dir: filepath.Join(parent, "d")})
			if err != nil {
				t.Fatal(err)
			}
			if err := test.plant(p.Dir, victim.path); err != nil {
				t.Fatal(err)
			}
			if test.code == "" {
				for _, check := range []func(Paths) error{Verify, Prepare, Verify} {
					if err := check(p); err != nil {
						t.Error(err)
					}
				}
				serveOnce(t, p)
				return
			}
			before := modeOf(p.Dir)
			wantCode(t, Verify(p), test.code)
			wantCode(t, Prepare(p), test.code)
			if after := modeOf(p.Dir); after != before {
				t.Errorf("the directory's mode went from %v to %v", before, after)
			}
			victim.check(t)
		})
	}
}

func modeOf(path string) os.FileMode {
	info, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	return info.Mode()
}

// The socket may lie elsewhere; the directory it lies in is held to the same.
func TestHostileSocketDirectory(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	if err := plantDir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := Locate(noEnv, Options{Dir: filepath.Join(shortDir(t), "d"), Socket: filepath.Join(open, "x.sock")})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, Prepare(p), private.CodeOpen)
}

func plantDir(path string, mode os.FileMode) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

func TestSudoIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("running as root on behalf of a user needs root")
	}
	p, err := Locate(noEnv, Options{Dir: filepath.Join(shortDir(t), "d")})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SUDO_UID", "1000")
	wantCode(t, Prepare(p), private.CodeSudo)
	if _, err := os.Lstat(p.Dir); !os.IsNotExist(err) {
		t.Errorf("the directory was made: %v", err)
	}
	t.Setenv("SUDO_UID", "0")
	if err := Prepare(p); err != nil {
		t.Error(err)
	}
}
