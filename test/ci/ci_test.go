package ci

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"podium/pkg/cli"
)

const root = "../.."

// workflow is what the tests read of a GitHub Actions workflow.
type workflow struct {
	Jobs map[string]struct {
		Steps []struct {
			Uses, Run, If string
			With          map[string]string
		}
	}
}

// TestExampleWorkflow has the make targets, the podium commands and the files
// that deploy/examples/ci.yml names.
func TestExampleWorkflow(t *testing.T) {
	var w workflow
	if err := yaml.Unmarshal(read(t, "deploy/examples/ci.yml"), &w); err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, job := range w.Jobs {
		for _, step := range job.Steps {
			for _, line := range regexp.MustCompile(`&&|\n`).Split(step.Run, -1) {
				if line = strings.TrimSpace(line); line != "" {
					commands++
					checkCommand(t, line)
				}
			}
			for _, file := range regexp.MustCompile(`'([^']+)'`).FindAllStringSubmatch(step.With["key"], -1) {
				exists(t, file[1])
			}
		}
	}
	if commands < 4 {
		t.Errorf("the workflow runs %d commands: want the cluster made, used and its logs kept", commands)
	}
}

// TestCI has the one command of .ci/run: a make target.
func TestCI(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(string(read(t, ".ci/run"))), "\n")
	checkCommand(t, strings.TrimPrefix(lines[len(lines)-1], "exec "))
	if info, err := os.Stat(filepath.Join(root, ".ci/run")); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf(".ci/run cannot be executed: %v", err)
	}
}

// checkCommand checks a command line that calls make or podium.
func checkCommand(t *testing.T, line string) {
	t.Helper()
	words := strings.Fields(line)
	switch words[0] {
	case "make":
		for _, target := range words[1:] {
			if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:`).Match(read(t, "Makefile")) {
				t.Errorf("%s: the Makefile has no target %s", line, target)
			}
		}
	case "bin/podium":
		checkPodium(t, line, words[1:])
	default:
		t.Errorf("%s: neither make nor podium", line)
	}
}

// checkPodium checks the command, its flags and its number of arguments, without
// running it.
func checkPodium(t *testing.T, line string, words []string) {
	t.Helper()
	command, rest, err := cli.NewCommand(cli.IO{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}).Find(words)
	if err != nil || !command.Runnable() {
		t.Errorf("%s: no such command: %v", line, err)
		return
	}
	if err := command.ParseFlags(rest); err != nil {
		t.Errorf("%s: %v", line, err)
		return
	}
	if err := command.ValidateArgs(command.Flags().Args()); err != nil {
		t.Errorf("%s: %v", line, err)
	}
	for i, word := range words[:len(words)-1] {
		if word == "-f" || word == "--config" {
			exists(t, words[i+1])
		}
	}
}

// TestDependsAreOnTheNodeImage has every package that ours depends on in the list
// of the node image, but for those of Debian's base system.
func TestDependsAreOnTheNodeImage(t *testing.T) {
	base := map[string]bool{"systemd": true, "mount": true}
	listed := map[string]bool{}
	for _, line := range strings.Split(string(read(t, "deploy/docker/packages")), "\n") {
		listed[strings.TrimSpace(line)] = true
	}
	depends := regexp.MustCompile(`(?m)^Depends: (.*)$`).FindSubmatch(read(t, "deploy/debian/control"))
	if depends == nil {
		t.Fatal("deploy/debian/control has no Depends")
	}
	for _, name := range strings.Split(string(depends[1]), ", ") {
		if !listed[name] && !base[name] {
			t.Errorf("the package depends on %s, which node images do not have", name)
		}
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func exists(t *testing.T, file string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		t.Error(err)
	}
}
