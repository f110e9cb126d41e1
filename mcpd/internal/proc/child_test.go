package proc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestChildTalks(t *testing.T) {
	eachSpawner(t, func(t *testing.T, sp Spawner) {
		c := start(t, sp, sh("cat"))
		out := linesOf(t, c.Stdout())
		for _, s := range []string{"one", strings.Repeat("x", 1<<20)} {
			go func() { _, _ = io.WriteString(c.Stdin(), s+"\n") }()
			if got := out.next(); got != s {
				t.Fatalf("got %d bytes back, want %d", len(got), len(s))
			}
		}
		if c.Err() != nil {
			t.Errorf("a running child has the error %v", c.Err())
		}
	})
}

func TestChildReportsItsEnd(t *testing.T) {
	eachSpawner(t, func(t *testing.T, sp Spawner) {
		for name, tt := range map[string]struct {
			script string
			want   string
		}{
			"success": {"exit 0", `server "test" ended with exit status 0`},
			"failure": {"echo no such table >&2; exit 3", "server \"test\" ended with exit status 3; its last lines on stderr:\nno such table"},
			"signal":  {"kill -9 $$", `server "test" was ended by signal 9 (killed)`},
		} {
			t.Run(name, func(t *testing.T) {
				c := start(t, sp, sh(tt.script))
				awaitDone(t, c.Done())
				var exit *ExitError
				if !errors.As(c.Err(), &exit) || exit.Error() != tt.want {
					t.Errorf("got %v, want %s", c.Err(), tt.want)
				}
				if err := c.Process().Signal(syscall.SIGTERM); err != os.ErrProcessDone {
					t.Errorf("signalling it afterwards: %v", err)
				}
			})
		}
	})
}

func TestStopLadder(t *testing.T) {
	const grace = 300 * time.Millisecond
	eachSpawner(t, func(t *testing.T, sp Spawner) {
		for name, tt := range map[string]struct {
			script   string
			want     syscall.WaitStatus
			min, max time.Duration // how many graces it takes
		}{
			"ends when stdin does": {"echo $$; cat; exit 7", 7 << 8, 0, 1},
			"needs SIGTERM":        {"trap 'exit 8' TERM; sleep 100 & echo $!; wait", 8 << 8, 1, 2},
			"needs SIGKILL":        {"trap '' TERM; sleep 100 & echo $!; wait", 9, 2, 3},
			"leaves a grandchild":  {"sleep 100 & echo $!; cat; exit 7", 7 << 8, 0, 1},
		} {
			t.Run(name, func(t *testing.T) {
				c := start(t, sp, sh(tt.script))
				grandchild := linesOf(t, c.Stdout()).pid()
				begun := time.Now()
				if err := c.Stop(t.Context(), Graces{Stdin: grace, Term: grace}); err != nil {
					t.Fatal(err)
				}
				took := time.Since(begun)
				if got := c.Process().Status(); got != tt.want {
					t.Errorf("status %#x, want %#x", got, tt.want)
				}
				if took < tt.min*grace || took > tt.max*grace+2*time.Second {
					t.Errorf("it took %v, want %d to %d graces of %v", took, tt.min, tt.max, grace)
				}
				awaitGone(t, grandchild)
			})
		}
	})
}

func TestStopHurriesWhenItsContextEnds(t *testing.T) {
	eachSpawner(t, func(t *testing.T, sp Spawner) {
		c := start(t, sp, sh("trap '' TERM; echo ready; sleep 1000 & wait"))
		linesOf(t, c.Stdout()).next()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begun := time.Now()
		if err := c.Stop(ctx, Graces{Stdin: time.Hour, Term: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > testBound {
			t.Errorf("it took %v", took)
		}
	})
}

func TestStopByManyAtOnce(t *testing.T) {
	eachSpawner(t, func(t *testing.T, sp Spawner) {
		c := start(t, sp, sh("cat"))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := c.Stop(t.Context(), DefaultGraces()); err != nil {
					t.Error(err)
				}
				select {
				case <-c.Done():
				default:
					t.Error("Stop returned before the end")
				}
			})
		}
		wg.Wait()
	})
}

// Something outside the group holds both pipes after the server's end. That delays nothing for long, and loses nothing.
func TestPipesHeldByStranger(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("there is no setsid(1) here to leave the group with")
	}
	eachSpawner(t, func(t *testing.T, sp Spawner) {
		c := start(t, sp, sh("setsid sh -c 'echo ready; exec sleep 1000' & read x; printf last; exit 0"))
		if _, err := io.ReadFull(c.Stdout(), make([]byte, len("ready\n"))); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c.Stdin(), "go\n"); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		awaitDone(t, c.Process().Done())
		ended := time.Now()
		awaitDone(t, c.Done())
		if d := time.Since(ended); d > drainBound+time.Second {
			t.Errorf("stderr held up the end for %v", d)
		}
		got, err := io.ReadAll(c.Stdout())
		if string(got) != "last" || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read %q, %v", got, err)
		}
		if d := time.Since(begun); d > testBound {
			t.Errorf("reading took %v", d)
		}
		if _, err := c.Stdin().Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
			t.Errorf("writing to a server that has ended: %v", err)
		}
	})
}

func TestReleasedGroupOutlivesItsLeader(t *testing.T) {
	eachSpawner(t, func(t *testing.T, sp Spawner) {
		c := start(t, sp, sh("sleep 1000 & echo $!; read x"))
		background := linesOf(t, c.Stdout()).pid()
		c.Process().Release()
		start(t, sp, sh("true")) // once this is answered, the release has been taken in
		if err := c.Stop(t.Context(), DefaultGraces()); err != nil {
			t.Fatal(err)
		}
		if gone(background) {
			t.Error("the released group was ended with its leader")
		}
		_ = syscall.Kill(background, syscall.SIGKILL)
		awaitGone(t, background)
	})
}

// A writer that hangs, fails or is slow costs log lines and nothing else, and what it costs is counted.
func TestStderrNeverBlocksTheServer(t *testing.T) {
	const flood = 10 << 20
	for name, w := range map[string]*awkwardWriter{
		"hangs": {block: make(chan struct{})},
		"fails": {err: errors.New("disk full")},
		"takes": {},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Start(t.Context(), Direct{}, sh("head -c 10485760 /dev/zero >&2; cat"), w)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Stdout().Close()
			if _, err := io.WriteString(c.Stdin(), "hello\n"); err != nil {
				t.Fatal(err)
			}
			if got := linesOf(t, c.Stdout()).next(); got != "hello" {
				t.Errorf("got %q", got)
			}
			if err := c.Stop(t.Context(), DefaultGraces()); err != nil {
				t.Fatal(err)
			}
			if w.block != nil {
				close(w.block)
				eventually(t, "the writer has taken what was kept for it, and the note", func() bool { return len(w.note()) > 0 })
			}
			_, dropped := c.Stderr()
			if got := w.zeros() + dropped; got != flood {
				t.Errorf("%d bytes written and dropped, of %d", got, flood)
			}
			if w.block != nil && (dropped == 0 || !bytes.Contains(w.note(), []byte("bytes of stderr were dropped here"))) {
				t.Errorf("%d bytes were dropped, and the log says %q", dropped, w.note())
			}
		})
	}
}

// awkwardWriter counts the zeros that it takes and keeps all else.
type awkwardWriter struct {
	block chan struct{}
	err   error

	mu    sync.Mutex // guards what follows
	taken int64
	rest  []byte
}

func (w *awkwardWriter) Write(p []byte) (int, error) {
	if w.block != nil {
		<-w.block
	}
	if w.err != nil {
		return 0, w.err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range p {
		if b == 0 {
			w.taken++
		} else {
			w.rest = append(w.rest, b)
		}
	}
	return len(p), nil
}

func (w *awkwardWriter) zeros() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.taken
}

func (w *awkwardWriter) note() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Clone(w.rest)
}

func TestLastLines(t *testing.T) {
	long := strings.Repeat("a", 3*stderrTail)
	for name, tt := range map[string]struct {
		writes []string
		want   string
	}{
		"nothing":         {nil, ""},
		"all":             {[]string{"one\n", "two\n"}, "one\ntwo"},
		"only whole ones": {[]string{long, "\nlast\n"}, "last"},
		"a long one":      {[]string{long}, long[:stderrTail]},
		"not UTF-8":       {[]string{"a\xffb"}, "a?b"},
	} {
		t.Run(name, func(t *testing.T) {
			var kept tail
			for _, s := range tt.writes {
				_, _ = io.WriteString(&kept, s)
			}
			if got := kept.last(); got != tt.want {
				t.Errorf("got %d bytes %.40q, want %d bytes %.40q", len(got), got, len(tt.want), tt.want)
			}
		})
	}
}

func TestStdinTakesDeadlines(t *testing.T) {
	eachSpawner(t, func(t *testing.T, sp Spawner) {
		c := start(t, sp, sh("exec sleep 1000"))
		if err := c.Stdin().SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Stdin().Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("writing to a server that does not read: %v", err)
		}
	})
}
