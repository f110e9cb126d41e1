package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"
)

// Verdict is the status of a doctor's answer.
type Verdict string

// The verdicts: all well, some failure, no daemon.
const (
	Healthy     Verdict = "healthy"
	Unhealthy   Verdict = "unhealthy"
	Unavailable Verdict = "unavailable"
)

// DoctorAnswer is what doctor answers.
type DoctorAnswer struct {
	Status Verdict `json:"status"`
	// Detail says in a sentence why there is no daemon; empty if there is one.
	Detail string `json:"detail,omitempty"`
	// Daemon is nil if there is none.
	Daemon *Snapshot `json:"daemon,omitempty"`
	// Recovery is the content of the recovery file, null if all is clear.
	Recovery     json.RawMessage `json:"recovery"`
	SocketExists bool            `json:"socketExists"`
	PidAlive     bool            `json:"pidAlive"`
	// Checks are the names of what was looked at.
	Checks   []string  `json:"checks"`
	Findings []Finding `json:"findings"`
}

// NewDoctorAnswer returns the answer for a daemon, nil if none is running, and
// what the checks found. The verdict follows from the two.
func NewDoctorAnswer(daemon *Snapshot, findings []Finding) DoctorAnswer {
	a := DoctorAnswer{Status: Healthy, Daemon: daemon, Findings: findings}
	switch {
	case daemon == nil:
		a.Status = Unavailable
	case failing(findings):
		a.Status = Unhealthy
	}
	return a
}

// MarshalJSON encodes the answer with lists that are never null.
func (a DoctorAnswer) MarshalJSON() ([]byte, error) {
	type plain DoctorAnswer // without this method
	a.Checks = append([]string{}, a.Checks...)
	a.Findings = convert(a.Findings, Finding.canonical)
	return json.Marshal(plain(a))
}

// LogsAnswer is what logs answers.
type LogsAnswer struct {
	// Status is "available" or "unavailable".
	Status string `json:"status"`
	Path   string `json:"path"`
	// Content is the end of the log in valid UTF-8, from the beginning of a
	// line, at most [MaxBytes] long.
	Content string `json:"content"`
	// Truncated is true if the log has more before Content.
	Truncated bool `json:"truncated"`
}

// ReadLog returns the end of the log at path. A log that is not there is an
// answer too.
func ReadLog(path string) (LogsAnswer, error) {
	a := LogsAnswer{Status: "unavailable", Path: path}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err != nil {
		return a, fmt.Errorf("reading log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return a, fmt.Errorf("reading log: %w", err)
	}
	if !info.Mode().IsRegular() {
		return a, fmt.Errorf("reading log %q: it is not a regular file", path)
	}
	// One byte more than is shown tells whether a line begins where it begins.
	start := max(0, info.Size()-MaxBytes-1)
	data, err := io.ReadAll(io.NewSectionReader(f, start, MaxBytes+1))
	if err != nil {
		return a, fmt.Errorf("reading log: %w", err)
	}
	a.Status = "available"
	a.Content, a.Truncated = lastLines(string(data), MaxBytes)
	a.Truncated = a.Truncated || start > 0
	return a, nil
}

// lastLines returns the last lines of text, made valid UTF-8, that fit into
// limit bytes, and whether that is not all. A last line that is longer than
// that by itself is cut at its beginning.
func lastLines(text string, limit int) (tail string, cut bool) {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text, false
	}
	start := len(text) - limit
	if newline := strings.IndexByte(text[start-1:len(text)-1], '\n'); newline >= 0 {
		return text[start+newline:], true
	}
	for !utf8.RuneStart(text[start]) {
		start++
	}
	return text[start:], true
}
