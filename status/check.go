package status

import (
	"context"
	"fmt"
	"time"
)

// Check looks at one thing that can be wrong.
type Check interface {
	// Name names the check in lower case, words joined by hyphens.
	Name() string
	// Run returns what it found, nothing if all is well. It returns soon after
	// ctx ends.
	Run(ctx context.Context) []Finding
}

// Report is what a number of checks found.
type Report struct {
	// Checks are the names of the checks that were run, in their order.
	Checks []string
	// Findings of all checks, as ordered by [SortFindings].
	Findings []Finding
}

// RunChecks runs the checks one after the other. A check that panics, and one
// that ctx leaves no time for, becomes a finding of code [CheckFailed]; the
// others are run all the same.
func RunChecks(ctx context.Context, checks ...Check) Report {
	var r Report
	for _, c := range checks {
		r.Checks = append(r.Checks, c.Name())
		r.Findings = append(r.Findings, runCheck(ctx, c)...)
	}
	SortFindings(r.Findings)
	return r
}

func runCheck(ctx context.Context, c Check) (findings []Finding) {
	const remedy = "run interlock daemon doctor again, and report the problem if it stays"
	if err := ctx.Err(); err != nil {
		return []Finding{CheckFailed.Finding(fmt.Sprintf("%s: not looked at: %v", c.Name(), err), remedy, time.Now())}
	}
	defer func() {
		if r := recover(); r != nil {
			findings = []Finding{CheckFailed.Finding(fmt.Sprintf("%s: %v", c.Name(), r), remedy, time.Now())}
		}
	}()
	return c.Run(ctx)
}
