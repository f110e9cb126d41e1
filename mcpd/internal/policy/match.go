package policy

import (
	"path"
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
	if s.Builtin != "" {
		return c.by[mark{builtin, s.Builtin}]
	}
	for _, m := range marksOf(s.Command, s.Args) {
		if e := c.by[m]; e != nil {
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
		if rest := after(args, "/c"); len(rest) > 0 {
			return marksOf(rest[0], rest[1:])
		}
	case "npx", "bunx", "pnpx":
		return npmMarks(args)
	case "npm", "pnpm", "yarn", "bun":
		if len(args) > 0 && (args[0] == "exec" || args[0] == "dlx" || args[0] == "x" || args[0] == "run") {
			return npmMarks(args[1:])
		}
	case "uvx":
		return pythonMarks(args)
	case "pipx", "uv":
		return pythonMarks(after(args, "run"))
	case "docker", "podman", "nerdctl":
		return imageMarks(after(args, "run"))
	}
	if strings.HasPrefix(name, "python") {
		if module := valueOf(args, "-m"); module != "" {
			return []mark{{python, pythonName(module)}}
		}
	}
	marks := []mark{{program, name}}
	if pkg := packageOfPath(command); pkg != "" {
		marks = append(marks, mark{npm, pkg})
	}
	// An interpreter: the first argument that is a file says what it runs.
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		if pkg := packageOfPath(arg); pkg != "" {
			marks = append(marks, mark{npm, pkg})
		} else if strings.ContainsAny(arg, `/\`) {
			marks = append(marks, mark{program, programName(arg)})
		}
		break
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

func npmMarks(args []string) []mark {
	var marks []mark
	for _, flag := range []string{"-p", "--package"} {
		if pkg := valueOf(args, flag); pkg != "" {
			marks = append(marks, mark{npm, npmName(pkg)})
		}
	}
	if pkg := firstPlain(args, "-p", "--package", "-c", "--call", "--prefix", "--registry"); pkg != "" {
		marks = append(marks, mark{npm, npmName(pkg)})
	}
	return marks
}

func pythonMarks(args []string) []mark {
	var marks []mark
	if pkg := valueOf(args, "--from"); pkg != "" {
		marks = append(marks, mark{python, pythonName(pkg)})
	}
	first := firstPlain(args, "--from", "--spec", "--with", "--python", "-p", "--directory", "--project", "--index-url", "--env-file")
	if strings.HasPrefix(first, "python") {
		if module := valueOf(args, "-m"); module != "" {
			first = module
		}
	}
	if first != "" {
		marks = append(marks, mark{python, pythonName(first)})
	}
	return marks
}

func imageMarks(args []string) []mark {
	if first := firstPlain(args, "-e", "--env", "--env-file", "-v", "--volume", "--mount", "--name", "--network", "--net",
		"-w", "--workdir", "-u", "--user", "-p", "--publish", "--platform", "--pull", "--entrypoint", "--add-host",
		"-l", "--label", "-m", "--memory", "--cpus", "--tmpfs", "-h", "--hostname", "--security-opt", "--cap-drop", "--cap-add"); first != "" {
		return []mark{{image, imageName(first)}}
	}
	return nil
}

// after returns what follows the first word, or all if it is not there.
func after(args []string, word string) []string {
	for i, arg := range args {
		if arg == word {
			return args[i+1:]
		}
	}
	return args
}

// valueOf returns the value of an option, given as --name value or --name=value.
func valueOf(args []string, name string) string {
	for i, arg := range args {
		if arg == name && i+1 < len(args) {
			return args[i+1]
		}
		if value, ok := strings.CutPrefix(arg, name+"="); ok {
			return value
		}
	}
	return ""
}

// firstPlain returns the first argument that is neither an option nor the value of
// one of those that take one.
func firstPlain(args []string, takeValue ...string) string {
	for i := 0; i < len(args); i++ {
		switch {
		case contains(takeValue, args[i]):
			i++
		case args[i] == "--" || strings.HasPrefix(args[i], "-"):
		default:
			return args[i]
		}
	}
	return ""
}

func contains(list []string, word string) bool {
	for _, w := range list {
		if w == word {
			return true
		}
	}
	return false
}

// packageOfPath returns the npm package that a path leads into.
func packageOfPath(file string) string {
	const folder = "node_modules/"
	file = strings.ReplaceAll(file, `\`, "/")
	i := strings.LastIndex(file, folder)
	if i < 0 {
		return ""
	}
	parts := strings.Split(file[i+len(folder):], "/")
	if strings.HasPrefix(parts[0], "@") && len(parts) > 1 {
		return parts[0] + "/" + parts[1]
	}
	if parts[0] == ".bin" {
		return ""
	}
	return parts[0]
}

// npmName drops a version: @scope/name@1.2.3 is @scope/name.
func npmName(spec string) string {
	if i := strings.LastIndexByte(spec, '@'); i > 0 {
		spec = spec[:i]
	}
	return strings.ToLower(spec)
}

// pythonName drops versions and extras, and writes a name as PEP 503 does.
func pythonName(spec string) string {
	if i := strings.IndexAny(spec, "=<>!~@[ ;."); i > 0 {
		spec = spec[:i]
	}
	return strings.ReplaceAll(strings.ToLower(spec), "_", "-")
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
