package peers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"podium/pkg/client/kubeconfig"
)

// tool is podium or kubectl, in a directory of its own.
type tool struct {
	t      *testing.T
	binary string
	dir    string
	env    []string
}

// tools returns podium and the real kubectl. `make build` and `hack/peers kubectl`
// make them.
func tools(t *testing.T, env ...string) (podium, kubectl *tool) {
	t.Helper()
	made := make([]*tool, 2)
	for i, path := range []string{"../../bin/podium", "../../bin/peers/kubectl"} {
		binary, err := filepath.Abs(path)
		check(t, err)
		dir := t.TempDir()
		made[i] = &tool{t: t, binary: binary, dir: dir, env: append([]string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}, env...)}
	}
	return made[0], made[1]
}

// run returns the exit code and the standard output, in which the directory is DIR.
func (c *tool) run(args ...string) string {
	c.t.Helper()
	cmd := exec.CommandContext(context.Background(), c.binary, args...)
	cmd.Dir, cmd.Env = c.dir, c.env
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		c.t.Fatalf("%s: %v", c.binary, err)
	}
	if err != nil {
		c.t.Logf("%s %s: %v: %s", filepath.Base(c.binary), strings.Join(args, " "), err, errs.String())
	}
	return fmt.Sprintf("exit %d\n%s", cmd.ProcessState.ExitCode(), strings.ReplaceAll(out.String(), c.dir, "DIR"))
}

func (c *tool) write(name, text string) {
	c.t.Helper()
	check(c.t, os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600))
}

// parsed returns a kubeconfig file, with its lists by name: their order has no meaning.
func (c *tool) parsed(name string) map[string]any {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join(c.dir, name))
	if os.IsNotExist(err) {
		return nil
	}
	check(c.t, err)
	var out map[string]any
	check(c.t, yaml.Unmarshal(data, &out))
	for _, list := range []string{"clusters", "users", "contexts"} {
		byName := map[string]any{}
		entries, _ := out[list].([]any)
		for _, e := range entries {
			byName[fmt.Sprint(e.(map[string]any)["name"])] = e
		}
		out[list] = byName
	}
	return out
}

// kubeconfig writes a kubeconfig for the server, and returns its path.
func (s *server) kubeconfig() string {
	s.t.Helper()
	path := s.file("kubeconfig")
	cluster := kubeconfig.Cluster{Server: s.url(), CertificateAuthority: "ca.crt"}
	check(s.t, kubeconfig.New("peers", cluster, kubeconfig.User{ClientCertificate: "admin.crt", ClientKey: "admin.key"}).Write(path, 0o600))
	return path
}

// Each command does to the kubeconfig files what kubectl does, and prints the same.
func TestConfigAsKubectl(t *testing.T) {
	podium, kubectl := tools(t, "KUBECONFIG=a:b")
	for _, c := range []*tool{podium, kubectl} {
		c.write("ca.crt", "pem\n")
		check(t, os.Mkdir(filepath.Join(c.dir, "sub"), 0o700))
		c.write("sub/key.pem", "key\n")
		c.write("c", "apiVersion: v1\nkind: Config\n")
	}
	for _, line := range []string{
		"config view", "config get-contexts", "config get-clusters", "config current-context",
		"config set-cluster one --server=https://192.0.2.1:6443 --certificate-authority=ca.crt",
		"config set-cluster one --tls-server-name=x",
		"config set-cluster two --server=https://192.0.2.2 --certificate-authority=ca.crt --embed-certs",
		"config set-cluster three --insecure-skip-tls-verify --proxy-url=http://proxy",
		"config set-cluster three --insecure-skip-tls-verify --certificate-authority=ca.crt",
		"config set-cluster three --embed-certs",
		"config set-credentials ann --client-certificate=ca.crt --client-key=sub/key.pem",
		"config set-credentials bob --username=bob --password=secret",
		"config set-credentials bob --token=token",
		"config set-credentials exec --exec-command=login --exec-api-version=client.authentication.k8s.io/v1 --exec-arg=a --exec-arg=b --exec-env=A=1 --exec-interactive-mode=Never",
		"config set-credentials exec --exec-env=A- --exec-env=B=2 --exec-provide-cluster-info",
		"config set-credentials oidc --auth-provider=oidc --auth-provider-arg=client-id=x --auth-provider-arg=realm=y",
		"config set-credentials oidc --auth-provider-arg=realm-",
		"config set-credentials bad --token=x --username=y",
		"config set-context one --cluster=one --user=ann --namespace=team",
		"config set-context two --cluster=two --user=bob",
		"config set-context --current --namespace=x",
		"config use-context one", "config use-context nowhere", "config current-context",
		"config set-context --current --namespace=", "config get-contexts", "config get-contexts two", "config get-contexts -o name", "config get-contexts --no-headers",
		"config set contexts.two.namespace other", "config set clusters.one.insecure-skip-tls-verify false", "config set users.ann.token t",
		"config set users.new.client-key-data a2V5", "config set users.new.client-certificate-data raw --set-raw-bytes",
		"config set clusters.10.0.0.1.server https://10.0.0.1", "config set nonsense x", "config set clusters.one.nonsense x", "config set users.new.client-key-data !",
		"config unset users.ann.token", "config unset contexts.none", "config unset contexts.none.namespace", "config unset users.new",
		"config rename-context one uno", "config rename-context one x", "config rename-context two uno",
		"config view --minify", "config view --raw", "config view --minify --flatten --context=two", "config view -o jsonpath={.clusters[*].cluster.server}", "config view -o jsonpath={.users[*].name}",
		"config view --kubeconfig=c", "config view --merge=false",
		"config set-cluster four --server=https://192.0.2.4 --kubeconfig=c", "config get-users", // kubectl get-clusters does not sort
		"config delete-context two", "config delete-context uno", "config delete-user ann", "config delete-user nobody", "config delete-cluster two",
		"config unset current-context", "config unset clusters", "config view --raw",
	} {
		args := strings.Fields(line)
		if diff := cmp.Diff(kubectl.run(args...), podium.run(args...)); diff != "" {
			t.Errorf("%s: kubectl (-) and podium (+) print\n%s", line, diff)
		}
		for _, file := range []string{"a", "b", "c"} {
			if diff := cmp.Diff(kubectl.parsed(file), podium.parsed(file)); diff != "" {
				t.Fatalf("after %s, the file %s of kubectl (-) and podium (+):\n%s", line, file, diff)
			}
		}
	}
}

// The descriptions are those of kubectl, for every kind that it treats specially.
func TestDescribeAsKubectl(t *testing.T) {
	s := startServer(t)
	config := s.kubeconfig()
	podium, kubectl := tools(t, "KUBECONFIG="+config)
	story, err := os.ReadFile("../../pkg/cli/testdata/describe.txtar")
	check(t, err)
	_, objects, _ := strings.Cut(string(story), "-- objects.yaml --\n")
	objects, _, _ = strings.Cut(objects, "\n-- ") // the next file
	podium.write("objects.yaml", objects)
	podium.run("create", "serviceaccount", "default") // no controller runs
	if out := podium.run("apply", "-f", "objects.yaml"); !strings.HasPrefix(out, "exit 0") {
		t.Fatal(out)
	}
	for _, object := range []string{
		"ingress/web", "ingressclass/ic", "networkpolicy/np", "pdb/budget", "quota/q", "limits/l", "pvc/claim", "pv/vol", "sc/fast", "csinode/node",
		"priorityclass/high", "priorityclass/system-node-critical", "hpa/h", "role/r", "clusterrole/admin", "clusterrolebinding/cluster-admin",
		"rolebinding/system:controller:bootstrap-signer", "endpointslice/es", "daemonset/ds", "csr/c", "lease/le", "servicecidr/kubernetes",
		"service/svc", "serviceaccount/default",
	} {
		args := []string{"describe", object}
		if strings.HasPrefix(object, "rolebinding/") {
			args = append(args, "-n", "kube-system")
		}
		if diff := cmp.Diff(kubectl.run(args...), podium.run(args...)); diff != "" {
			t.Errorf("describe %s: kubectl (-) and podium (+) print\n%s", object, diff)
		}
	}
}

// Objects, options and kustomizations are printed as by kubectl.
func TestOutputAsKubectl(t *testing.T) {
	s := startServer(t)
	config := s.kubeconfig()
	podium, kubectl := tools(t, "KUBECONFIG="+config)
	for _, c := range []*tool{podium, kubectl} {
		check(t, os.Mkdir(filepath.Join(c.dir, "k"), 0o700))
		c.write("k/kustomization.yaml", "resources: [c.yaml]\nnamePrefix: x-\nconfigMapGenerator: [{name: g, literals: [a=b]}]\ncommonLabels: {l: m}\n")
		c.write("k/c.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: c}\nspec: {ports: [{port: 80}]}\n")
	}
	podium.run("create", "rolebinding", "rb", "--clusterrole=view", "--user=zoe")
	podium.run("create", "service", "clusterip", "svc", "--tcp=80")
	for _, line := range []string{
		"kustomize k", "kustomize none", "kustomize k -o out",
		"set selector svc svc a=b --dry-run=client -o jsonpath={.spec.selector}", "set selector svc svc a=b", "set selector rolebinding rb a=b",
		"set subject rolebinding rb --user=zoe --group=g --dry-run=client -o jsonpath={.subjects}", "set subject rolebinding rb --serviceaccount=x",
		"plugin list",
	} {
		args := strings.Fields(line)
		want := strings.ReplaceAll(kubectl.run(args...), "kubectl", "podium")
		if diff := cmp.Diff(want, podium.run(args...)); diff != "" {
			t.Errorf("%s: kubectl (-) and podium (+) print\n%s", line, diff)
		}
	}
}
