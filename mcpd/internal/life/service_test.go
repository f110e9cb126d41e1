package life

import (
	"context"
	"encoding/xml"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// serviceManager stands for systemd's end of the notification socket.
func serviceManager(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return conn
}

func hear(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 256)
	n, err := conn.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func TestNotify(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := NotifyReady(); err != nil {
		t.Errorf("without a service manager: %v", err)
	}
	manager := serviceManager(t)
	if err := NotifyReady(); err != nil {
		t.Fatal(err)
	}
	if got := hear(t, manager); got != "READY=1" {
		t.Errorf("heard %q", got)
	}
	if err := NotifyStopping(90 * time.Second); err != nil {
		t.Fatal(err)
	}
	if got := hear(t, manager); got != "STOPPING=1\nEXTEND_TIMEOUT_USEC=90000000" {
		t.Errorf("heard %q", got)
	}
}

func TestWatchdog(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "")
	if err := Watchdog(t.Context(), func() bool { return true }); err != nil {
		t.Errorf("without a watchdog: %v", err)
	}
	manager := serviceManager(t)
	t.Setenv("WATCHDOG_USEC", strconv.Itoa(10_000))
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0 // every other time it is unwell
	done := make(chan error)
	go func() { done <- Watchdog(ctx, func() bool { asked++; return asked%2 == 1 }) }()
	const beats = 3
	for range beats {
		if got := hear(t, manager); got != "WATCHDOG=1" {
			t.Errorf("heard %q", got)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if asked < 2*beats-1 {
		t.Errorf("%d beats after asking %d times: it spoke while unwell", beats, asked)
	}
}

func TestUnitFiles(t *testing.T) {
	const awkward = `/tmp/a b/100%/$HOME/"q"/interlock`
	const config = `/home/$USER/100%.json`
	service, socket, plist := UnitFiles([]string{awkward, "daemon", "serve", "--config", config}, "/run/a b/100%/interlock.sock")
	for _, want := range []string{
		`ExecStart="/tmp/a b/100%%/$HOME/\"q\"/interlock" "daemon" "serve" "--config" "/home/$$USER/100%%.json"` + "\n",
		"Type=notify\n", "KillMode=mixed\n", "Delegate=yes\n", "UMask=0077\n",
	} {
		if !strings.Contains(service, want) {
			t.Errorf("the service has no %q:\n%s", want, service)
		}
	}
	for _, want := range []string{"ListenStream=/run/a b/100%%/interlock.sock\n", "SocketMode=0600\n", "DirectoryMode=0700\n"} {
		if !strings.Contains(socket, want) {
			t.Errorf("the socket unit has no %q:\n%s", want, socket)
		}
	}
	var words []string
	decoder := xml.NewDecoder(strings.NewReader(plist))
	for {
		token, err := decoder.Token()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("the property list is no XML: %v", err)
		}
		if text, ok := token.(xml.CharData); ok && strings.TrimSpace(string(text)) != "" {
			words = append(words, string(text))
		}
	}
	if got := strings.Join(words, "|"); !strings.Contains(got, "|"+awkward+"|daemon|serve|--config|"+config+"|") {
		t.Errorf("the property list says %s", got)
	}
}

// systemd itself reads the units, where it is installed.
func TestUnitFilesVerify(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	dir := filepath.Join(t.TempDir(), "100% a b")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "interlock")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	service, socket, _ := UnitFiles([]string{binary, "daemon", "serve", "--dir", dir}, filepath.Join(dir, "interlock.sock"))
	units := t.TempDir()
	for name, text := range map[string]string{"interlock.service": service, "interlock.socket": socket} {
		if err := os.WriteFile(filepath.Join(units, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(analyze, "verify", "--man=no",
		filepath.Join(units, "interlock.service"), filepath.Join(units, "interlock.socket")).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "interlock") {
			t.Errorf("systemd-analyze: %s", line)
		}
	}
	if err != nil && len(out) == 0 {
		t.Error(err)
	}
}
