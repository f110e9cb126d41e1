package mcpd

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// protocolDocument returns docs/protocol.md.
func protocolDocument(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// constants returns the values and comments of the constants of a type in a file
// of this package, in order; those without a type are under "".
func constants(t *testing.T, file, typeName string) (values, comments []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); typeName != "" && (!ok || name.Name != typeName) || typeName == "" && spec.Type != nil {
			return true
		}
		var value strings.Builder
		ast.Inspect(spec.Values[0], func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.UnaryExpr:
				value.WriteString(n.Op.String())
			case *ast.BasicLit:
				value.WriteString(n.Value)
			}
			return true
		})
		values = append(values, value.String())
		comments = append(comments, strings.TrimSpace(spec.Comment.Text()))
		return true
	})
	if len(values) == 0 {
		t.Fatalf("%s has no constants of type %q", file, typeName)
	}
	return values, comments
}

// TestErrorsAreDocumented compares the table of own errors with the code: code,
// name and meaning of each, and none besides.
func TestErrorsAreDocumented(t *testing.T) {
	doc := protocolDocument(t)
	values, meanings := constants(t, "refusal.go", "errorCode")
	names := make(map[string]string)
	for i, value := range values {
		n, err := strconv.Atoi(value)
		if err != nil {
			t.Fatal(err)
		}
		name := errorCode(n).name()
		if other, ok := names[name]; ok {
			t.Errorf("%s and %s have one name, %q", other, value, name)
		}
		names[name] = value
		if row := fmt.Sprintf("\n| %s | `%s` | %s | ", value, name, meanings[i]); !strings.Contains(doc, row) {
			t.Errorf("there is no row that begins with%s", row)
		}
		if n > -31000 || n < -31999 {
			t.Errorf("%s is not between -31000 and -31999", value)
		}
	}
	if rows := regexp.MustCompile(`(?m)^\| -31\d\d\d \| `+"`").FindAllString(doc, -1); len(rows) != len(values) {
		t.Errorf("%d rows for %d errors", len(rows), len(values))
	}
}

// TestErrorDataIsDocumented compares the members of an error's data, of hello
// and of its answer with the tables.
func TestErrorDataIsDocumented(t *testing.T) {
	doc := protocolDocument(t)
	for _, c := range []struct {
		heading string
		of      any
	}{
		{"| member of the data |", refusalData{}}, {"| param |", Hello{}}, {"| result | meaning |", Welcome{}},
	} {
		_, table, found := strings.Cut(doc, c.heading)
		if !found {
			t.Fatalf("there is no table %q", c.heading)
		}
		table, _, _ = strings.Cut(table, "\n\n")
		for i := range reflect.TypeOf(c.of).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(c.of).Field(i).Tag.Get("json"), ",")
			if !strings.Contains(table, "`"+name+"`") {
				t.Errorf("%s: %s is not documented", c.heading, name)
			}
		}
	}
}

// TestControlMethodsAreDocumented finds every method of the daemon's own.
func TestControlMethodsAreDocumented(t *testing.T) {
	doc := protocolDocument(t)
	values, _ := constants(t, "hello.go", "")
	for _, value := range values {
		if method, err := strconv.Unquote(value); err == nil && !strings.Contains(doc, "`"+method+"`") {
			t.Errorf("%s is not documented", method)
		}
	}
}
