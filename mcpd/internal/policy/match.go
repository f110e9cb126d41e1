package policy

import (
	"path"
	"slices"
	"strings"

	"interlock/mcpd/internal/config"
)

// mark is something by which a server is recognised.
type mark struct{ kind, name string }

const (
	npm     = "npm"
	python  = "python"
	program = "program"
	image   = "image"
	builtin = "builtin"
)

// marks returns the marks of an entry.
func (m *Matches) marks() []mark {
	var all []mark
	add := func(kind string, names []string, canonical func(string) string) {
		for _, name := range names {
			all = append(all, mark{kind, canonical(name)})
		}
	}
	add(npm, m.NPM, npmName)
	add(python, m.Python, pythonName)
	add(program, m.Programs, programName)
	add(image, m.Images, imageName)
	if m.Builtin != "" {
		all = append(all, mark{builtin, m.Builtin})
	}
	return all
}

// Find returns the entry of the server that the configured command starts, nil if
// it is none of those known. Nothing is looked up outside of the configuration.
func (c *Catalogue) Find(s config.Server) *Entry {
	marks := []mark{{builtin, s.Builtin}}
	if s.Builtin == "" {
		marks = marksOf(s.Command, s.Args)
	}
	for _, m := range marks {
		if p := c.by[m]; p != nil {
			e, err := p.read()
			if err != nil {
				return nil // a fault of the program, which its tests find
			}
			return e
		}
	}
	return nil
}

// marksOf returns what a command line says about the program that it starts in the
// end, looking through the launchers that people use.
func marksOf(command string, args []string) []mark {
	name := programName(command)
	switch name {
	case "env":
		return marksOfEnv(args)
	case "cmd":
		if i := slices.IndexFunc(args, func(arg string) bool { return strings.EqualFold(arg, "/c") }); i >= 0 && i+1 < len(args) {
			return marksOf(args[i+1], args[i+2:])
		}
		return nil
	case "npx", "bunx", "pnpx":
		return npmMarks(args)
	case "npm", "pnpm", "yarn", "bun":
		options, rest := leading(args, npmValues...)
		if len(rest) > 0 && (rest[0] == "exec" || rest[0] == "dlx" || rest[0] == "x") {
			return npmMarks(slices.Concat(options, rest[1:]))
		}
		if name != "bun" {
			return nil // a script of the folder's, whatever its name
		}
	case "uvx":
		return pythonMarks(args)
	case "pipx", "uv", "uvenv":
		_, rest := leading(args, uvValues...)
		if len(rest) > 0 && rest[0] == "tool" {
			rest = rest[1:]
		}
		if len(rest) > 0 && rest[0] == "run" {
			return pythonMarks(rest[1:])
		}
		return nil
	case "docker", "podman", "nerdctl":
		_, rest := leading(args, "--config", "-c", "--context", "-H", "--host", "-l", "--log-level")
		if len(rest) > 0 && rest[0] == "container" {
			rest = rest[1:]
		}
		if len(rest) > 0 && rest[0] == "run" {
			return imageMarks(rest[1:])
		}
		return nil
	}
	if isPython(name) {
		return scriptMarks(args)
	}
	marks := []mark{{program, name}}
	if pkg := packageOfPath(command); pkg != "" {
		marks = append(marks, mark{npm, pkg})
	}
	if slices.Contains([]string{"node", "nodejs", "bun", "deno", "tsx", "ts-node"}, name) {
		marks = append(marks, scriptMarks(args)...)
	}
	return marks
}

// marksOfEnv looks behind the assignments and options of env.
func marksOfEnv(args []string) []mark {
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "-u" || arg == "--unset" || arg == "-C" || arg == "--chdir":
			i++
		case !strings.HasPrefix(arg, "-") && !strings.Contains(arg, "="):
			return marksOf(arg, args[i+1:])
		}
	}
	return nil
}

// isPython reports whether the program is Python: python3.12, or py on Windows.
func isPython(name string) bool {
	version, ok := strings.CutPrefix(name, "python")
	return name == "py" || ok && strings.Trim(version, "w.0123456789") == ""
}

// scriptMarks are those of what an interpreter runs: a module, or the first
// argument that is a file.
func scriptMarks(args []string) []mark {
	options, rest := leading(args, "-m", "-c", "-W", "-X", "-r", "--require", "--import", "--loader", "--experimental-loader",
		"--env-file", "-C", "--conditions", "--title", "--tsconfig")
	if module := valueOf(options, "-m"); module != "" {
		return moduleMarks(module)
	}
	if len(rest) > 1 && rest[0] == "run" { // of bun and deno
		_, rest = leading(rest[1:])
	}
	if len(rest) == 0 {
		return nil
	}
	file := rest[0]
	if pkg, ok := strings.CutPrefix(file, "npm:"); ok {
		return []mark{{npm, npmName(pkg)}}
	}
	if pkg := packageOfPath(file); pkg != "" {
		return []mark{{npm, pkg}}
	}
	if strings.ContainsAny(file, `/\`) {
		return []mark{{program, programName(file)}}
	}
	return nil
}

// moduleMarks are those of a Python module and of the packages it is in.
func moduleMarks(module string) []mark {
	var marks []mark
	for module != "" {
		marks = append(marks, mark{python, pythonName(module)})
		module = module[:max(strings.LastIndexByte(module, '.'), 0)]
	}
	return marks
}

// Options of npm and its like, of uv and its like, and of docker run, that take a
// value, where it may come as an argument of its own.
var (
	npmValues = []string{
		"-p", "--package", "-c", "--call", "--prefix", "--registry", "--cache", "--userconfig", "-w", "--workspace",
		"--loglevel", "--node-options", "--script-shell", "--dir", "--filter", "-F", "--cwd",
	}
	uvValues = []string{
		"-m", "--module", "--from", "--spec", "--with", "-w", "--with-editable", "--with-requirements", "--extra", "--group", "--package",
		"--python", "-p", "--directory", "--project", "--index", "--default-index", "--index-url", "-i", "--extra-index-url", "--find-links",
		"-f", "--refresh-package", "--cache-dir", "--config-file", "--env-file", "-c", "--constraints", "--overrides", "--pip-args", "--suffix",
	}
	dockerValues = []string{
		"-e", "--env", "--env-file", "-v", "--volume", "--volumes-from", "--volume-driver", "--mount", "--name", "--network", "--net",
		"--network-alias", "--net-alias", "-w", "--workdir", "-u", "--user", "--userns", "--group-add", "-p", "--publish", "--expose",
		"--platform", "--pull", "--entrypoint", "--add-host", "-l", "--label", "--label-file", "--annotation", "-m", "--memory",
		"--memory-swap", "--memory-reservation", "-c", "--cpu-shares", "--cpus", "--cpuset-cpus", "--gpus", "--device", "--shm-size",
		"--pids-limit", "--ulimit", "--sysctl", "--tmpfs", "-h", "--hostname", "--domainname", "--dns", "--dns-search", "--ip", "--link",
		"--ipc", "--pid", "--uts", "--cgroupns", "--cgroup-parent", "--runtime", "--restart", "--stop-signal", "--stop-timeout",
		"--security-opt", "--cap-drop", "--cap-add", "--log-driver", "--log-opt", "--cidfile", "-a", "--attach", "--detach-keys",
		"--storage-opt", "--health-cmd", "--secret",
	}
)

// npmMarks are those of the packages named, or else of what is a package where
// none is.
func npmMarks(args []string) []mark {
	options, rest := leading(args, npmValues...)
	if pkgs := valuesOfOption(options, "-p", "--package"); len(pkgs) > 0 {
		var marks []mark
		for _, pkg := range pkgs {
			marks = append(marks, mark{npm, npmName(pkg)})
		}
		return marks
	}
	if len(rest) == 0 {
		return nil
	}
	return []mark{{npm, npmName(rest[0])}}
}

// pythonMarks are those of the distribution named, or else of the program, whose
// name is that of its distribution unless another is named.
func pythonMarks(args []string) []mark {
	options, rest := leading(args, uvValues...)
	if module := valueOf(options, "-m", "--module"); module != "" {
		return moduleMarks(module)
	}
	from := valueOf(options, "--from", "--spec")
	switch {
	case from != "" && !strings.ContainsAny(from, `/\`):
		return []mark{{python, pythonName(from)}}
	case len(rest) == 0:
		return nil
	case strings.ContainsAny(rest[0], `/\`):
		return []mark{{program, programName(rest[0])}}
	case isPython(programName(rest[0])):
		return scriptMarks(rest[1:])
	}
	return []mark{{python, pythonName(rest[0])}}
}

func imageMarks(args []string) []mark {
	_, rest := leading(args, dockerValues...)
	if len(rest) == 0 {
		return nil
	}
	return []mark{{image, imageName(rest[0])}}
}

// leading splits arguments before the first that is neither an option nor the value
// of one of those that take one. What comes after it is that program's own.
func leading(args []string, takeValue ...string) (options, rest []string) {
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "--":
			return args[:i:i], args[i+1:]
		case slices.Contains(takeValue, arg):
			i++
		case !strings.HasPrefix(arg, "-"):
			return args[:i:i], args[i:]
		}
	}
	return args, nil
}

// valueOf returns the first value of an option by any of its names.
func valueOf(options []string, names ...string) string {
	if values := valuesOfOption(options, names...); len(values) > 0 {
		return values[0]
	}
	return ""
}

// valuesOfOption returns all values of an option, given as --name value or
// --name=value.
func valuesOfOption(options []string, names ...string) (values []string) {
	for i, arg := range options {
		for _, name := range names {
			if value, ok := strings.CutPrefix(arg, name+"="); ok {
				values = append(values, value)
			} else if arg == name && i+1 < len(options) {
				values = append(values, options[i+1])
			}
		}
	}
	return values
}

// packageOfPath returns the npm package that a path leads into.
func packageOfPath(file string) string {
	const folder = "node_modules/"
	file = "/" + strings.ToLower(strings.ReplaceAll(file, `\`, "/"))
	i := strings.LastIndex(file, "/"+folder)
	if i < 0 {
		return ""
	}
	parts := strings.Split(file[i+1+len(folder):], "/")
	if strings.HasPrefix(parts[0], "@") && len(parts) > 1 {
		return parts[0] + "/" + parts[1]
	}
	if parts[0] == ".bin" {
		return ""
	}
	return parts[0]
}

// npmName drops a version: @scope/name@1.2.3 is @scope/name. What stands for
// another package (name@npm:other@1) is the other.
func npmName(spec string) string {
	if len(spec) > 1 {
		name, version, _ := strings.Cut(spec[1:], "@")
		if other, ok := strings.CutPrefix(version, "npm:"); ok {
			return npmName(other)
		}
		spec = spec[:1] + name
	}
	return strings.ToLower(spec)
}

// pythonName drops versions and extras, and writes a name as PEP 503 does. A dot
// does not end a name: awslabs.core-mcp-server is one of many.
func pythonName(spec string) string {
	if i := strings.IndexAny(spec, "=<>!~@[ ;"); i > 0 {
		spec = spec[:i]
	}
	parts := strings.FieldsFunc(strings.ToLower(spec), func(r rune) bool { return r == '-' || r == '_' || r == '.' })
	return strings.Join(parts, "-")
}

// programName is the name of an executable without its folder and the endings of
// Windows and scripts.
func programName(command string) string {
	name := strings.ToLower(path.Base(strings.ReplaceAll(command, `\`, "/")))
	for _, end := range []string{".exe", ".cmd", ".bat", ".js", ".mjs", ".cjs", ".py"} {
		name = strings.TrimSuffix(name, end)
	}
	return name
}

// imageName drops tag, digest and the registry that stands for itself.
func imageName(spec string) string {
	spec, _, _ = strings.Cut(spec, "@")
	if i := strings.LastIndexByte(spec, ':'); i > strings.LastIndexByte(spec, '/') {
		spec = spec[:i]
	}
	return strings.ToLower(strings.TrimPrefix(spec, "docker.io/"))
}
