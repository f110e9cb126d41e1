package recovery_test

import (
	"fmt"
	"hash/crc32"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"interlock/recovery"
)

// intent is the n-th call of the tests.
func intent(n int) recovery.Intent {
	return recovery.Intent{
		ClientRequestID: fmt.Sprint(n),
		Owner:           "client-1",
		Client:          "claude-code",
		Server:          "git",
		Tool:            "git_commit",
		Class:           recovery.ClassMutate,
		Resources:       []string{"tree:/home/u/project"},
		Epoch:           7,
		Arguments:       []byte(`{"message":"secret"}`),
	}
}

// open opens a journal that is closed with the test, if not before.
func open(t testing.TB, o recovery.Options) (*recovery.Journal, recovery.Report) {
	t.Helper()
	j, report, err := recovery.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j, report
}

// begin begins a run that must succeed.
func begin(t testing.TB, j *recovery.Journal, in recovery.Intent) *recovery.Run {
	t.Helper()
	r, err := j.Begin(in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ids lists the ids of runs in order.
func ids(runs []recovery.Record) []string {
	list := []string{}
	for _, r := range runs {
		list = append(list, r.RequestID)
	}
	slices.Sort(list)
	return list
}

func TestMain(m *testing.M) {
	if childMain() {
		return
	}
	goleak.VerifyTestMain(m)
}

// castagnoli is the checksum of the format.
func castagnoli(p []byte) uint32 { return crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)) }
