package logfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestTail(t *testing.T) {
	for _, test := range []struct {
		name, content string
		limit         int64
		want          string
		truncated     bool
	}{
		{"empty", "", 10, "", false},
		{"all of it", "one\ntwo\n", 8, "one\ntwo\n", false},
		{"whole lines", "one\ntwo\nthree\n", 9, "three\n", true},
		{"only part of a line", "0123456789", 4, "6789", true},
		{"only part of a line with its end", "0123456789\n", 4, "789\n", true},
		{"within a character", "ééé", 3, "é", true},
		{"invalid", "a\xffb\xc3\n", 100, "a\uFFFDb\uFFFD\n", false},
		{"nothing wanted", "one\n", 0, "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "daemon.log")
			if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, truncated, err := tail(path, test.limit)
			if err != nil || got != test.want || truncated != test.truncated {
				t.Errorf("got %q, %v, %v; want %q, %v", got, truncated, err, test.want, test.truncated)
			}
		})
	}
}

func tail(path string, limit int64) (content string, truncated bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	return tailOf(f, limit)
}

func TestTailIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.log")
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOf(rapid.SampledFrom([]byte("a\n\xff\xc3\xa9\xe2\x82\xac"))).Draw(t, "content")
		limit := int64(rapid.IntRange(0, 40).Draw(t, "limit"))
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		got, truncated, err := tail(path, limit)
		if err != nil {
			t.Fatal(err)
		}
		if !utf8.ValidString(got) || int64(len(got)) > limit {
			t.Fatalf("%q is not valid UTF-8 of at most %d bytes", got, limit)
		}
		whole := valid(raw)
		if !truncated && got != whole {
			t.Fatalf("%q is not all of %q, though it says so", got, whole)
		}
		if truncated && int64(max(len(raw), len(whole))) <= limit {
			t.Fatalf("%q would have fit", whole)
		}
	})
}

// Follow sees every line once, in order, while the log grows, is rotated and is
// cut short.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "daemon.log")
		ctx, cancel := context.WithCancel(t.Context())
		var got strings.Builder
		ended := make(chan error, 1)
		follow := func() {
			ended <- Follow(ctx, path, 8, func(s string) error { got.WriteString(s); return nil })
		}
		expect := func(want string) {
			t.Helper()
			pass(2 * followInterval)
			if got.String() != want {
				t.Fatalf("got %q, want %q", got.String(), want)
			}
			got.Reset()
		}
		go follow()
		expect("")
		w := open(t, path, Options{MaxBytes: 20, Keep: 9})
		write(t, w, "one\n")
		expect("one\n")
		write(t, w, "two")
		expect("")
		write(t, w, "\nthree\n")
		expect("two\nthree\n")
		write(t, w, "before\n")
		write(t, w, "after 1\n")
		expect("before\nafter 1\n")
		write(t, w, "end")
		write(t, w, " is elsewhere\n") // in the next file
		expect("end\n is elsewhere\n")
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		write(t, w, "anew\n")
		expect("anew\n")
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}

		ctx, cancel = context.WithCancel(t.Context())
		write(t, w, "last line\n")
		go follow()
		expect("st line\n") // the end of a line that is longer than the limit
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

func TestFollowEndsWithItsReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.log")
	if err := os.WriteFile(path, []byte("line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("broken pipe")
	if err := Follow(t.Context(), path, 100, func(string) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("Follow gave %v", err)
	}
}
