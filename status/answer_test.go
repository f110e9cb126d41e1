package status

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"
)

func TestVerdict(t *testing.T) {
	s := full()
	info := []Finding{DaemonOutdated.Finding("", "", began()), PeerNamespace.Finding("", "", began())}
	failure := append(info, SocketMissing.Finding("", "", began()))
	tests := []struct {
		daemon   *Snapshot
		findings []Finding
		want     Verdict
	}{
		{&s, nil, Healthy}, {&s, info, Healthy}, {&s, failure, Unhealthy}, {nil, nil, Unavailable}, {nil, failure, Unavailable},
	}
	for _, tt := range tests {
		if got := NewDoctorAnswer(tt.daemon, tt.findings).Status; got != tt.want {
			t.Errorf("daemon %v, findings %v: %s, want %s", tt.daemon != nil, tt.findings, got, tt.want)
		}
	}
}

// check is a Check of one function.
type check struct {
	name string
	run  func(context.Context) []Finding
}

func (c check) Name() string                      { return c.name }
func (c check) Run(ctx context.Context) []Finding { return c.run(ctx) }

func TestRunChecks(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	report := RunChecks(ctx,
		check{"the weather", func(context.Context) []Finding { return []Finding{DaemonOutdated.Finding("", "", began())} }},
		check{"nothing", func(context.Context) []Finding { return nil }},
		check{"a fault", func(context.Context) []Finding { panic("index out of range") }},
		check{"the socket", func(context.Context) []Finding { cancel(); return []Finding{SocketMissing.Finding("", "", began())} }},
		check{"too late", func(context.Context) []Finding { t.Error("run after the end"); return nil }},
	)
	if got := strings.Join(report.Checks, ", "); got != "the weather, nothing, a fault, the socket, too late" {
		t.Errorf("checks %q", got)
	}
	var got []string
	for _, f := range report.Findings {
		got = append(got, string(f.Code)+" "+f.Detail)
	}
	want := "socket_missing |check_failed a fault: index out of range|check_failed too late: not looked at: context canceled|daemon_outdated "
	if strings.Join(got, "|") != want {
		t.Errorf("findings %q, want %q", strings.Join(got, "|"), want)
	}
}

func TestReadLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.log")
	line := strings.Repeat("x", 99) + "\n"
	exact := strings.Repeat(line, MaxBytes/100) + strings.Repeat("y", MaxBytes%100-1) + "\n"
	tests := []struct {
		name, text string
		length     int
		first      string
		truncated  bool
	}{
		{"empty", "", 0, "", false},
		{"short", "a\nb\n", 4, "a", false},
		{"as long as allowed", exact, MaxBytes, strings.Repeat("x", 99), false},
		{"longer by a line", line + exact, MaxBytes, strings.Repeat("x", 99), true},
		{"longer by a byte", "z" + exact, MaxBytes - 100, strings.Repeat("x", 99), true},
		{"long", strings.Repeat(line, 10_000), MaxBytes / 100 * 100, strings.Repeat("x", 99), true},
		{"one line", strings.Repeat("é", 100_000), MaxBytes, strings.Repeat("é", MaxBytes/2), true},
		{"no newline at the end", strings.Repeat(line, 10_000) + "tail", (MaxBytes-4)/100*100 + 4, strings.Repeat("x", 99), true},
		{"not UTF-8", strings.Repeat("\xff", 50_000) + "\nlast\n", 9, "\ufffd", false},
		{"not UTF-8, and longer for it", strings.Repeat("\xffa", 30_000) + "\nlast\n", 5, "last", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			writeFile(t, path, tt.text)
			got, err := ReadLog(path)
			first, _, _ := strings.Cut(got.Content, "\n")
			if err != nil || got.Status != "available" || got.Path != path || got.Truncated != tt.truncated || len(got.Content) != tt.length || first != tt.first {
				t.Errorf("ReadLog: %v, %s, truncated %t, %d bytes, want %d; first line %.20q", err, got.Status, got.Truncated, len(got.Content), tt.length, first)
			}
			if !utf8.ValidString(got.Content) || len(got.Content) > MaxBytes {
				t.Error("not valid UTF-8 within bounds")
			}
		})
	}
}

func TestReadLogWhatIsNoLog(t *testing.T) {
	dir := t.TempDir()
	if got, err := ReadLog(filepath.Join(dir, "none")); err != nil || got.Status != "unavailable" || got.Content != "" || got.Truncated {
		t.Errorf("ReadLog of nothing = %+v, %v", got, err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, fifo} {
		if _, err := ReadLog(path); err == nil {
			t.Errorf("ReadLog(%q) succeeded", path)
		}
	}
}
