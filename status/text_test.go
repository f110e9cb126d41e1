package status

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"
)

func TestWriteText(t *testing.T) {
	now := began().Add(26 * time.Hour)
	cut := full()
	cut.ClientSessions, cut.LeasesTotal, cut.FindingsTotal = 20, 5, 9
	idle := Snapshot{State: StateDraining, PID: 7, Socket: "/s", StartedAt: now.Add(-59 * time.Second)}
	for name, s := range map[string]Snapshot{"status.txt": full(), "status-cut.txt": cut, "status-idle.txt": idle} {
		var b strings.Builder
		if err := WriteText(&b, s, now); err != nil {
			t.Fatal(err)
		}
		checkGolden(t, name, b.String())
	}
}

func TestWriteDoctorText(t *testing.T) {
	s := full()
	unavailable := NewDoctorAnswer(nil, []Finding{DaemonCrashed.Finding("pid 4242 is gone", "interlock daemon start", began())})
	unavailable.Detail = "no daemon is running in /run/i"
	silent := []Finding{DaemonUnresponsive.Finding("pid 4242 was stopped by a signal", "kill -CONT 4242", began())}
	for name, a := range map[string]DoctorAnswer{
		"doctor-silent.txt":      NewDoctorAnswer(&s, silent),
		"doctor-healthy.txt":     NewDoctorAnswer(&s, nil),
		"doctor-unhealthy.txt":   NewDoctorAnswer(&s, full().Findings),
		"doctor-unavailable.txt": unavailable,
	} {
		var b strings.Builder
		if err := WriteDoctorText(&b, a); err != nil {
			t.Fatal(err)
		}
		checkGolden(t, name, b.String())
	}
}

// hostile is text that would take over a terminal.
const hostile = "a\x1b]0;owned\a\x1b[2J\r\b\x7f\u009b31m\u202eevil\u2066\u200b\ufeff\u2028\U000e0041\xff z"

func TestTextIsSafeOnTerminals(t *testing.T) {
	s := full()
	s.Socket = hostile
	s.Identity.Build = hostile
	s.Sessions[0].Client = Client{hostile, hostile}
	s.Sessions[0].State, s.Sessions[0].Server = hostile, hostile
	s.Upstreams[0].Name = hostile
	s.Leases[0].Resource = hostile
	s.Findings = []Finding{{Code: hostile, Severity: hostile, Title: hostile, Detail: hostile, Remedy: hostile}}
	answer := NewDoctorAnswer(nil, s.Findings)
	answer.Detail = hostile
	answer.Recovery, _ = json.Marshal(hostile)

	var text, doctor, statusJSON, doctorJSON strings.Builder
	for _, err := range []error{WriteText(&text, s, began()), WriteDoctorText(&doctor, answer), WriteJSON(&statusJSON, s), WriteJSON(&doctorJSON, answer)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, out := range map[string]string{"status": text.String(), "doctor": doctor.String(), "status JSON": statusJSON.String(), "doctor JSON": doctorJSON.String()} {
		for i, r := range out {
			if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028') {
				t.Errorf("%s has %U at %d", name, r, i)
			}
		}
	}
	var back Snapshot
	if err := json.Unmarshal([]byte(statusJSON.String()), &back); err != nil {
		t.Fatal(err)
	}
	if want := strings.ToValidUTF8(hostile, "\ufffd"); back.Socket != want {
		t.Errorf("through JSON %q became %q", want, back.Socket)
	}
}

func TestEscape(t *testing.T) {
	tests := []struct{ text, line, many string }{
		{"", "", ""},
		{"plain é 日本 👩 ‐", "plain é 日本 👩 ‐", "plain é 日本 👩 ‐"},
		{"a\tb\nc", `a\tb\nc`, "a\tb\nc"},
		{"a\r\n", `a\r\n`, "a\\r\n"},
		{"\x1b[31mred", `\x1b[31mred`, `\x1b[31mred`},
		{"\x00\x7f\u0085", `\x00\x7f\x85`, `\x00\x7f\x85`},
		{"\u202e\u2066\u2069\u200f\u061c", `\u202e\u2066\u2069\u200f\u061c`, `\u202e\u2066\u2069\u200f\u061c`},
		{"\U000e0041", `\U000e0041`, `\U000e0041`},
		{"a\xffb\xc3", `a\xffb\xc3`, `a\xffb\xc3`},
		{"\ufffd", "\ufffd", "\ufffd"},
	}
	for _, tt := range tests {
		if got := EscapeLine(tt.text); got != tt.line {
			t.Errorf("EscapeLine(%q) = %q, want %q", tt.text, got, tt.line)
		}
		if got := EscapeText(tt.text); got != tt.many {
			t.Errorf("EscapeText(%q) = %q, want %q", tt.text, got, tt.many)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 1500 * time.Millisecond: "1s", 59 * time.Second: "59s", time.Minute: "1m", 61 * time.Second: "1m1s",
		10 * time.Minute: "10m", time.Hour: "1h", 70 * time.Minute: "1h10m", 20 * time.Hour: "20h", 24 * time.Hour: "1d", 10*24*time.Hour + time.Hour: "10d1h",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %q, want %q", d, got, want)
		}
	}
}
