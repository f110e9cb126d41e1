package life

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"
)

var errUnreachable = errors.New("the socket does not answer")

// TestStopEscalates ends real processes, each by the mildest step that works.
func TestStopEscalates(t *testing.T) {
	graces := Graces{Ask: 300 * time.Millisecond, Term: 300 * time.Millisecond, Kill: 5 * time.Second}
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	fail := func(context.Context) error { return errUnreachable }
	polite := func(c *child) func(context.Context) error {
		return func(context.Context) error { return c.stdin.Close() }
	}
	for _, test := range []struct {
		name   string
		role   string
		frozen bool
		ask    func(c *child) func(context.Context) error
		want   []Step
	}{
		{"does as asked", "victim", false, polite, []Step{StepAsk}},
		{"no way to ask", "victim", false, nil, []Step{StepTerm}},
		{"cannot be asked", "victim", false, func(*child) func(context.Context) error { return fail }, []Step{StepAsk, StepTerm}},
		{"does not answer", "victim", false, func(*child) func(context.Context) error { return hang }, []Step{StepAsk, StepTerm}},
		{"ignores SIGTERM", "deaf", false, polite, []Step{StepAsk, StepTerm, StepKill}},
		{"frozen", "victim", true, polite, []Step{StepAsk, StepTerm, StepKill}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := startChild(t, test.role)
			if test.frozen {
				if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				if _, err := syscall.Wait4(c.id.PID, nil, syscall.WUNTRACED, nil); err != nil { // until it stands still
					t.Fatal(err)
				}
			}
			var steps []Step
			plan := StopPlan{Identity: c.id, Graces: graces, Report: func(step Step, _ time.Duration) { steps = append(steps, step) }}
			if test.ask != nil {
				plan.Ask = test.ask(c)
			}
			if err := Stop(t.Context(), plan); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(steps, test.want) {
				t.Errorf("it took %v, want %v", steps, test.want)
			}
			if _, err := Pin(c.id); !errors.Is(err, ErrGone) {
				t.Errorf("it still runs: %v", err)
			}
		})
	}
}

func TestStopKeepsItsHandsOff(t *testing.T) {
	c := startChild(t, "victim")
	stop := func(ctx context.Context, ask func(context.Context) error) error {
		return Stop(ctx, StopPlan{Identity: c.id, Ask: ask})
	}
	if err := stop(t.Context(), func(context.Context) error {
		return fmt.Errorf("%w: 2 servers are unaccounted for", ErrRefused)
	}); !errors.Is(err, ErrRefused) {
		t.Errorf("a refusal gave %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := stop(ctx, func(context.Context) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a finished context gave %v", err)
	}
	if got := c.signals(); got != "" {
		t.Errorf("it received %q", got)
	}
}

// A process that cannot be verified can still be asked.
func TestStopAsksTheUnverified(t *testing.T) {
	asked := 0
	err := Stop(t.Context(), StopPlan{Ask: func(context.Context) error { asked++; return errUnreachable }})
	if !errors.Is(err, ErrNotVerified) || !errors.Is(err, errUnreachable) || asked != 1 {
		t.Errorf("asked %d times, then %v", asked, err)
	}
}
