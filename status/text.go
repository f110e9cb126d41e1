package status

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// WriteJSON writes v as indented JSON with a newline at its end. What
// [EscapeLine] would escape is written as a \u sequence, so that the output is
// safe on a terminal and means the same to a parser.
func WriteJSON(w io.Writer, v any) error {
	data, err := encodeJSON(v)
	if err != nil {
		return fmt.Errorf("encoding answer: %w", err)
	}
	_, err = w.Write(data)
	return err
}

func encodeJSON(v any) ([]byte, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, err
	}
	var out []byte
	done := 0 // data before it is in out
	for i := 0; i < len(data); {
		if data[i] < 0x7f { // the encoder has escaped what is dangerous below
			i++
			continue
		}
		r, size := utf8.DecodeRune(data[i:])
		if dangerous(r) { // it can only be in a string
			out = append(out, data[done:i]...)
			for _, unit := range utf16.Encode([]rune{r}) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
			done = i + size
		}
		i += size
	}
	return append(append(out, data[done:]...), '\n'), nil
}

// WriteText writes a snapshot as people read it: the daemon, then a table each
// of sessions, servers and leases, then the findings. Ages are those at now.
// The text is safe on a terminal.
func WriteText(w io.Writer, s Snapshot, now time.Time) error {
	var b bytes.Buffer
	s = s.canonical()
	table(&b, nil, [][]string{
		{"daemon", fmt.Sprintf("%s, pid %d, for %s%s", s.State, s.PID, age(s.StartedAt, now), prefixed(", build ", s.Identity.Build))},
		{"socket", s.Socket},
		{"configuration", configuration(s)},
		{"sessions", of(s.ClientSessions, s.Limits.Sessions)},
		{"runs", strconv.Itoa(s.ActiveRunsTotal) + " in flight"},
		{"requests", fmt.Sprintf("%d taken, %d refused", s.Counters.Calls, s.Counters.RefusedBusy+s.Counters.RefusedLeases)},
	})
	table(&b, []string{"SESSION", "OWNER", "CLIENT", "SERVER", "STATE", "CALLS", "WAITING", "FOR"}, rows(s.Sessions, func(e Session) []string {
		return []string{e.ID, e.Owner, e.Client.Name + prefixed(" ", e.Client.Version), or(e.Server, "all"), e.State, strconv.Itoa(e.InFlight), strconv.Itoa(e.Waiting), age(e.StartedAt, now)}
	}))
	more(&b, len(s.Sessions), s.ClientSessions)
	table(&b, []string{"SERVER", "SCOPE", "STATE", "PID", "SESSIONS", "CALLS", "RESTARTS", "FOR"}, rows(s.Upstreams, func(u Upstream) []string {
		pid, running := "-", "-"
		if u.PID != 0 {
			pid, running = strconv.Itoa(u.PID), age(u.StartedAt, now)
		}
		return []string{u.Name, u.Scope, u.State, pid, strconv.Itoa(u.Sessions), strconv.Itoa(u.InFlight), strconv.Itoa(u.Restarts), running}
	}))
	more(&b, len(s.Upstreams), s.UpstreamsTotal)
	writeLeases(&b, s.Leases, now)
	more(&b, len(s.Leases), s.LeasesTotal)
	writeWaits(&b, s.LeaseWaits, now)
	more(&b, len(s.LeaseWaits), s.LeaseWaitsTotal)
	writeFindings(&b, s.Findings)
	more(&b, len(s.Findings), s.FindingsTotal)
	_, err := w.Write(b.Bytes())
	return err
}

// LeaseList is who has which lease, and who waits for one.
type LeaseList struct {
	Leases  []Lease     `json:"leases"`
	Waiting []LeaseWait `json:"waiting"`
}

// WriteText writes the list as people read it. The text is safe on a terminal.
func (l LeaseList) WriteText(w io.Writer, now time.Time) error {
	var b bytes.Buffer
	writeLeases(&b, l.Leases, now)
	writeWaits(&b, l.Waiting, now)
	if len(l.Leases)+len(l.Waiting) == 0 {
		b.WriteString("Nobody has a lease.\n")
	}
	_, err := w.Write(bytes.TrimPrefix(b.Bytes(), []byte("\n"))) // that before the first table
	return err
}

func writeLeases(b *bytes.Buffer, list []Lease, now time.Time) {
	table(b, []string{"LEASE", "OWNER", "CLIENT", "EPOCH", "HOW", "CALLS", "HELD FOR", "ENDS IN"}, rows(list, func(l Lease) []string {
		how, ends := "call", span(l.ExpiresAt.Sub(now))
		if l.ByHand {
			how = "by hand"
		}
		if l.InFlight > 0 {
			ends = "in use"
		}
		return []string{l.Resource, l.Owner, l.Client, strconv.FormatUint(l.Epoch, 10), how, strconv.Itoa(l.InFlight), age(l.AcquiredAt, now), ends}
	}))
}

func writeWaits(b *bytes.Buffer, list []LeaseWait, now time.Time) {
	table(b, []string{"WAITS FOR", "OWNER", "CLIENT", "BEHIND", "FOR"}, rows(list, func(w LeaseWait) []string {
		behind := w.BlockedBy.Owner + prefixed(" ", w.BlockedBy.Client)
		if w.BlockedBy.InLine {
			behind += ", in line"
		}
		return []string{strings.Join(w.Resources, ", "), w.Owner, w.Client, behind, age(w.Since, now)}
	}))
}

// WriteDoctorText writes a doctor's answer as people read it: the verdict, and
// the findings with what to do about them. The text is safe on a terminal.
func WriteDoctorText(w io.Writer, a DoctorAnswer) error {
	var b bytes.Buffer
	b.WriteString(string(a.Status))
	silent := slices.ContainsFunc(a.Findings, func(f Finding) bool { return f.Code == DaemonUnresponsive })
	switch {
	case a.Daemon != nil && silent:
		fmt.Fprintf(&b, ": daemon, pid %d, does not answer", a.Daemon.PID)
	case a.Daemon != nil:
		fmt.Fprintf(&b, ": daemon %s, pid %d, %s", a.Daemon.State, a.Daemon.PID, plural(a.Daemon.ClientSessions, "session"))
	case a.Detail != "":
		b.WriteString(": " + EscapeLine(a.Detail))
	}
	b.WriteString("\n")
	if a.Daemon != nil && a.Daemon.ConfigPath != "" {
		b.WriteString("configuration: " + EscapeLine(configuration(*a.Daemon)) + "\n")
	}
	writeFindings(&b, a.Findings)
	_, err := w.Write(b.Bytes())
	return err
}

// configuration says where the configuration is and which servers there are.
func configuration(s Snapshot) string {
	path := s.ConfigPath
	if path != "" && s.ConfigModifiedAt.IsZero() {
		path += " (not there)"
	}
	return path + prefixed("; servers: ", strings.Join(s.Servers, ", "))
}

// writeFindings writes the findings, the gravest first.
func writeFindings(b *bytes.Buffer, findings []Finding) {
	findings = convert(findings, Finding.canonical)
	SortFindings(findings)
	for _, f := range findings {
		fmt.Fprintf(b, "\n%s: %s (%s)\n", EscapeLine(string(f.Severity)), EscapeLine(f.Title), EscapeLine(string(f.Code)))
		if f.Detail != "" {
			fmt.Fprintf(b, "  %s\n", EscapeLine(f.Detail))
		}
		if f.Remedy != "" {
			fmt.Fprintf(b, "  try: %s\n", EscapeLine(f.Remedy))
		}
	}
}

// table writes cells in columns. With a head it is set off by an empty line,
// and left out if it has no rows.
func table(b *bytes.Buffer, head []string, rows [][]string) {
	if head != nil {
		if len(rows) == 0 {
			return
		}
		b.WriteString("\n")
		rows = append([][]string{head}, rows...)
	}
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				io.WriteString(tw, "\t")
			}
			io.WriteString(tw, EscapeLine(or(cell, "-")))
		}
		io.WriteString(tw, "\n")
	}
	tw.Flush() // into a buffer, which cannot fail
}

// rows returns the cells of each element of list.
func rows[T any](list []T, cells func(T) []string) [][]string {
	out := make([][]string, 0, len(list))
	for _, e := range list {
		out = append(out, cells(e))
	}
	return out
}

// more says how many elements of a list are not shown.
func more(b *bytes.Buffer, shown, total int) {
	if total > shown {
		fmt.Fprintf(b, "… and %d more\n", total-shown)
	}
}

// of writes n, and the limit it is under if there is one.
func of(n, limit int) string {
	if limit == 0 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d of %d", n, limit)
}

// or returns text, or other if text is empty.
func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// prefixed returns text behind prefix, or nothing if text is empty.
func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// plural writes n things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

// age writes how long ago t was.
func age(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return span(now.Sub(t))
}

// span writes a duration in its two largest units, and one that is over as 0s.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = max(0, d.Truncate(time.Second)); {
	case d < time.Minute:
		return d.String()
	case d < time.Hour:
		return trimZero(fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second))
	case d < day:
		return trimZero(fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute))
	}
	return trimZero(fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour))
}

// trimZero drops a second unit of zero.
func trimZero(text string) string {
	for _, unit := range []string{"m0s", "h0m", "d0h"} {
		if rest, ok := strings.CutSuffix(text, unit); ok {
			return rest + unit[:1]
		}
	}
	return text
}
