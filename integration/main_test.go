package integration

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

var (
	waysFlag  = flag.String("ways", "direct,bridge,socket", "comma-separated `ways` from a client to a server to test")
	callsFlag = flag.Int("calls", 10_000, "how many `calls` the isolation load makes")
	binFlag   = flag.String("interlock", "", "`path` of the binary to test (default: built from this module)")
	longFlag  = flag.Bool("long", false, "run the long forms of the tests that have one")
)

// programs are the paths of what TestMain built. Nothing changes them after.
var programs struct{ interlock, fakeserver, pager, ledger string }

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests wait more than they work.
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		f.Value.Set("8")
	}
	bin, err := os.MkdirTemp("", "interlock-bin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := 1
	if err := build(bin); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else if code = m.Run(); code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "the tests left goroutines:", err)
			code = 1
		}
	}
	os.RemoveAll(bin)
	os.Exit(code)
}

// build compiles the binary under test and the programs around it into bin.
func build(bin string) error {
	programs.fakeserver, programs.pager, programs.ledger = filepath.Join(bin, "fakeserver"), filepath.Join(bin, "pager"), filepath.Join(bin, "ledgerserver")
	if err := goBuild(bin, "interlock/integration/fakeserver", "interlock/integration/pager", "interlock/integration/ledgerserver"); err != nil {
		return err
	}
	if slices.Equal(ways(), []way{direct}) {
		return nil
	}
	if *binFlag != "" {
		path, err := filepath.Abs(*binFlag)
		programs.interlock = path
		return err
	}
	programs.interlock = filepath.Join(bin, "interlock")
	args := []string{"interlock/cmd/interlock"}
	if raceEnabled {
		args = append([]string{"-race"}, args...)
	}
	return goBuild(bin, args...)
}

func goBuild(bin string, args ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-o", bin + string(filepath.Separator)}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// node gives the path of a file below npm's modules.
func node(t *testing.T, path string) string {
	t.Helper()
	full, err := filepath.Abs(filepath.Join("npm", path))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(full); err != nil {
		t.Fatalf("%v\nThe servers and clients from npm are not installed: run `npm ci --prefix integration/npm` in the repository first.", err)
	}
	return full
}

// reference gives the reference server of that name as it is configured.
func reference(t *testing.T, name string, args ...string) server {
	t.Helper()
	script := node(t, "node_modules/@modelcontextprotocol/server-"+name+"/dist/index.js")
	return server{Command: "node", Args: append([]string{script}, args...)}
}
