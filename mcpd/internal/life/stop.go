package life

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

var (
	// ErrNotVerified is what an error of [Stop] is when it cannot be shown that
	// the process at the recorded pid is the daemon. Nobody was signalled.
	ErrNotVerified = errors.New("the process could not be verified, so it was not signalled")

	// ErrRefused is what StopPlan.Ask returns, wrapped, if the daemon answered
	// that it will not end. Stop then does no more.
	ErrRefused = errors.New("the daemon refuses to stop")

	// ErrSurvived is what an error of [Stop] is when the process outlived
	// SIGKILL, which the kernel holds back while it waits for a device.
	ErrSurvived = errors.New("the process has not ended")
)

// Graces are how long each step of a stop may take to end the process.
type Graces struct {
	Ask  time.Duration // the answer included; default 3 s
	Term time.Duration // after SIGTERM; default 5 s
	Kill time.Duration // after SIGKILL; default 2 s
}

// A Step is one of the ways to end the daemon.
type Step string

// The steps in their order.
const (
	StepAsk  Step = "ask"
	StepTerm Step = "SIGTERM"
	StepKill Step = "SIGKILL"
)

// StopPlan says whom to stop, and how.
type StopPlan struct {
	Identity Identity
	Ask      func(ctx context.Context) error     // over the socket; nil leaves the step out
	Graces   Graces                              // zero fields take the defaults
	Report   func(step Step, took time.Duration) // called after each step tried; may be nil
}

// Stop ends the process of the plan and returns once it has ended: it asks,
// then sends SIGTERM, then SIGKILL, and goes on to the next when the grace is
// over or the step failed. A process that ended before is success. A process
// that cannot be verified is asked, which harms nobody, and then the error is
// ErrNotVerified; whether it ended, its lock tells.
func Stop(ctx context.Context, plan StopPlan) error {
	graces := plan.Graces.withDefaults()
	process, pinErr := Pin(plan.Identity)
	if errors.Is(pinErr, ErrGone) {
		return nil
	}
	if pinErr == nil {
		defer process.Close()
	}
	steps := []struct {
		name  Step
		grace time.Duration
		act   func(context.Context) error
	}{
		{StepAsk, graces.Ask, plan.Ask},
		{StepTerm, graces.Term, func(context.Context) error { return process.Signal(unix.SIGTERM) }},
		{StepKill, graces.Kill, func(context.Context) error { return process.Signal(unix.SIGKILL) }},
	}
	var failures []error
	for _, step := range steps {
		if step.act == nil {
			continue
		}
		if step.name != StepAsk && pinErr != nil {
			return errors.Join(fmt.Errorf("stopping the daemon: %w: %w", ErrNotVerified, pinErr), errors.Join(failures...))
		}
		began := time.Now()
		ended, err := tryStep(ctx, step.grace, step.act, process)
		if plan.Report != nil {
			plan.Report(step.name, time.Since(began))
		}
		switch {
		case ended:
			return nil
		case errors.Is(err, ErrRefused):
			return fmt.Errorf("stopping the daemon: %w", err)
		case ctx.Err() != nil:
			return fmt.Errorf("stopping the daemon: %w", context.Cause(ctx))
		case err != nil:
			failures = append(failures, fmt.Errorf("%s: %w", step.name, err))
		}
	}
	return errors.Join(fmt.Errorf("stopping the daemon: pid %d: %w", plan.Identity.PID, ErrSurvived), errors.Join(failures...))
}

// tryStep acts and then waits for the process, both within the grace. Without
// a process, one that could not be verified, it only acts.
func tryStep(ctx context.Context, grace time.Duration, act func(context.Context) error, process *Process) (ended bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	err = act(ctx)
	switch {
	case errors.Is(err, ErrGone):
		return true, nil
	case process == nil:
		return false, err
	case err != nil:
		// It may have failed because the daemon just ended.
		done, cancelDone := context.WithCancel(ctx)
		cancelDone()
		return process.Ended(done) == nil, err
	}
	return process.Ended(ctx) == nil, nil
}

func (g Graces) withDefaults() Graces {
	for _, field := range []struct {
		value *time.Duration
		usual time.Duration
	}{{&g.Ask, 3 * time.Second}, {&g.Term, 5 * time.Second}, {&g.Kill, 2 * time.Second}} {
		if *field.value <= 0 {
			*field.value = field.usual
		}
	}
	return g
}
