package logfile

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"pgregory.net/rapid"
)

func TestSanitize(t *testing.T) {
	for in, want := range map[string]string{
		"plain\tétext\n":       "plain\tétext\n",
		"\x1b[31mred\x07\x00":  `\x1b[31mred\x07\x00`,
		"a\rb\x7f":             `a\x0db\x7f`,
		"c1: \u009b31m \u0085": `c1: \x9b31m \x85`,
		"raw: \x9b \xff":       `raw: \x9b \xff`,
		"\u202egnp.exe\u2066":  `\u202egnp.exe\u2066`,
		"\u202a\u2069\u2065":   `\u202a\u2069` + "\u2065",
		"\uFFFD stays":         "\uFFFD stays",
		"":                     "",
	} {
		if got := Sanitize(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		out := Sanitize(in)
		if !utf8.ValidString(out) || strings.ContainsFunc(out, needsEscape) {
			t.Fatalf("%q became %q", in, out)
		}
	})
}

type syncBuffer struct{ bytes.Buffer }

func (*syncBuffer) Sync() error { return nil }

func TestLogger(t *testing.T) {
	var out syncBuffer
	log := NewLogger(&out, zapcore.InfoLevel)
	log.Debug("not this")
	for range 200 { // sampling would thin these out
		log.Info("tool \x1b[2J called", zap.String("server", "a\nb"))
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 200 {
		t.Fatalf("%d lines", len(lines))
	}
	var entry struct{ Time, Level, Msg, Server string }
	decoder := json.NewDecoder(strings.NewReader(lines[0]))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&entry); err != nil {
		t.Fatalf("%v: %s", err, lines[0])
	}
	if entry.Level != "info" || entry.Msg != "tool \x1b[2J called" || entry.Server != "a\nb" || !strings.HasSuffix(entry.Time, "Z") {
		t.Errorf("got %+v", entry)
	}
	if strings.ContainsRune(lines[0], '\x1b') {
		t.Errorf("a control character passed: %q", lines[0])
	}
}
