package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// kubectlCommands are the commands of kubectl 1.37, with typical flags.
var kubectlCommands = []string{
	"create deployment x --image=y", "expose deployment x --port=80", "run x --image=y", "run x --image y --rm -it", "set image deployment/x c=y --record",
	"explain pods", "get pods", "edit pod x", "delete pod x", "rollout status deployment/x", "scale deployment x --replicas=1",
	"autoscale deployment x --max=3", "certificate approve x", "cluster-info dump --output-directory=x", "top pods --containers", "top nodes", "cordon x",
	"uncordon x", "drain x --ignore-daemonsets", "taint nodes x a=b:NoSchedule --overwrite", "describe pod x", "logs x", "attach x", "exec x -- ls",
	"port-forward x 80", "proxy --port=8001", "cp a x:b", "auth can-i get pods", "debug x -it --image=y", "events", "diff -f x", "apply -f x", "patch pod x -p {}",
	"replace -f x", "wait pod/x --for=delete", "kustomize x", "label pod x a=b", "annotate pod x a=b", "completion bash", "alpha", "api-resources", "api-versions",
	"config view", "config get-users", "config delete-context x", "config set a b --set-raw-bytes", "config rename-context a b", "plugin list --name-only", "version", "options",
	"create job x --image=y", "create cronjob x --image=y --schedule=z", "create ingress x --rule=a/=b:80", "create quota x --hard=a=1",
	"create poddisruptionbudget x --min-available=1", "create priorityclass x --value=1", "kuberc view", "kuberc set --section=x",
}

func TestCommandsOfKubectlExist(t *testing.T) {
	for _, line := range kubectlCommands {
		root := NewCommand(IO{})
		root.InitDefaultCompletionCmd()
		if found, _, _ := root.Find(strings.Fields(line)); found == root {
			t.Errorf("there is no command for %q", line)
		}
	}
}

// fails runs podium and returns its standard error.
func fails(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := Main(context.Background(), IO{In: strings.NewReader(""), Out: &out, Err: &errs}, args); code != 1 || out.Len() > 0 {
		t.Errorf("%v: code %d, output %q", args, code, out.String())
	}
	return errs.String()
}

func TestUnknownCommandsAndFlags(t *testing.T) {
	for line, want := range map[string]string{
		"gett pods --nonsense":         "Did you mean this?\n\tget",
		"rollout statsu x --nonsense":  `unknown command "statsu" for "podium rollout"`,
		"rollout bogus":                `unknown command "bogus" for "podium rollout"`,
		"create secret bogus x --flag": `unknown command "bogus" for "podium create secret"`,
		"certs bogus":                  `unknown command "bogus" for "podium certs"`,
		"--nonsense":                   "unknown flag: --nonsense",
		"get pods --nonsense":          "unknown flag: --nonsense",
		"create --nonsense":            "unknown flag: --nonsense",
	} {
		if got := fails(t, strings.Fields(line)...); !strings.Contains(got, want) {
			t.Errorf("podium %s: %q, want %q", line, got, want)
		}
	}
}
