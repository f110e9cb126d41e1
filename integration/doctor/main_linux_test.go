package doctor

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// bin is the directory of what TestMain built. Nothing changes it after.
var bin string

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests wait more than they work.
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		f.Value.Set("8")
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if bin, err = os.MkdirTemp("", "interlock-bin"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(bin)
	cmd := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "interlock/cmd/interlock", "interlock/integration/fakeserver")
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("building: %w\n%s", err, out)
	}
	return m.Run(), nil
}
