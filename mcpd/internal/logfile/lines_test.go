package logfile

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A clock stands still unless it is moved.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time { return c.now }

const noon = "2026-07-28T12:00:00.000Z "

func TestLines(t *testing.T) {
	for _, test := range []struct {
		name    string
		in      []string
		want    []string // behind the time
		dropped uint64
	}{
		{"lines", []string{"one\ntwo\n"}, []string{"one", "two"}, 0},
		{"in pieces", []string{"o", "ne\nt", "", "wo\n"}, []string{"one", "two"}, 0},
		{"CRLF", []string{"one\r\n\r\n"}, []string{"one", ""}, 0},
		{"without an end", []string{"last words"}, []string{"last words"}, 0},
		{"just as long as allowed", []string{"0123456789\n"}, []string{"0123456789"}, 0},
		{"too long", []string{"0123456789abc\nnext\n"}, []string{"dropped 3 bytes: more than the log takes", "0123456789", "next"}, 3},
		{"too long, in pieces", []string{"01234567", "89a", "bc", "\n"}, []string{"dropped 3 bytes: more than the log takes", "0123456789"}, 3},
		{"too long without an end", []string{"0123456789abc"}, []string{"dropped 3 bytes: more than the log takes", "0123456789"}, 3},
		{"beyond the burst", []string{strings.Repeat("123456789\n", 5)},
			[]string{"123456789", "123456789", "123456789", "dropped 20 bytes: more than the log takes"}, 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			w := NewLineWriter(&out, LineOptions{MaxLine: 10, Rate: 1, Burst: 30, Now: newClock().Now})
			for _, piece := range test.in {
				if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
					t.Fatalf("Write gave %d, %v", n, err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			var want strings.Builder
			for _, line := range test.want {
				want.WriteString(noon + line + "\n")
			}
			if out.String() != want.String() {
				t.Errorf("got\n%swant\n%s", out.String(), want.String())
			}
			if got := w.Dropped(); got != test.dropped {
				t.Errorf("%d bytes dropped, want %d", got, test.dropped)
			}
		})
	}
}

func TestLinesRecover(t *testing.T) {
	var out bytes.Buffer
	clock := newClock()
	w := NewLineWriter(&out, LineOptions{MaxLine: 100, Rate: 50, Burst: 101, Now: clock.Now})
	flood := strings.Repeat("x", 100) + "\n"
	for range 10 {
		_, _ = w.Write([]byte(flood))
	}
	clock.now = clock.now.Add(-time.Hour) // a clock that is set back gives nothing away
	_, _ = w.Write([]byte(flood))
	clock.now = clock.now.Add(2 * time.Second)
	_, _ = w.Write([]byte("calm\n"))
	_ = w.Close()
	want := noon + flood + "2026-07-28T11:00:02.000Z dropped 1010 bytes: more than the log takes\n2026-07-28T11:00:02.000Z calm\n"
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
	if got := w.Dropped(); got != 10*101 {
		t.Errorf("%d bytes dropped", got)
	}
}

// Every byte is either in the log or counted, however the input is cut, and the
// rate holds in the long run.
func TestLinesAccount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const maxLine, rate, burst = 40, 100, 200
		var out bytes.Buffer
		clock := newClock()
		began := clock.now
		w := NewLineWriter(&out, LineOptions{MaxLine: maxLine, Rate: rate, Burst: burst, Now: clock.Now})
		var written uint64
		for _, piece := range rapid.SliceOf(rapid.StringOf(rapid.SampledFrom([]rune("ab\n")))).Draw(t, "pieces") {
			n, _ := w.Write([]byte(piece))
			written += uint64(n)
			clock.now = clock.now.Add(time.Duration(rapid.IntRange(0, 500).Draw(t, "ms")) * time.Millisecond)
		}
		_, _ = w.Write([]byte("\n"))
		_ = w.Close()
		var passed uint64
		for line := range strings.Lines(out.String()) {
			if body := line[len(noon):]; !strings.HasPrefix(body, "dropped ") {
				passed += uint64(len(body))
			}
		}
		if passed+w.Dropped() != written+1 {
			t.Fatalf("of %d bytes %d passed and %d were dropped", written+1, passed, w.Dropped())
		}
		if allowed := burst + clock.now.Sub(began).Seconds()*rate; float64(passed) > allowed {
			t.Fatalf("%d bytes passed where %.0f may", passed, allowed)
		}
	})
}
