package peers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/admissiontest"
	"podium/pkg/apiserver/admission/podsecurity"
)

// TestPodSecurityStandards compares the admission plugin with upstream's checks:
// on each pod of upstream's fixtures and on random ones it refuses what they do
// not allow, with the same text, at every level and version.
func TestPodSecurityStandards(t *testing.T) {
	theirs, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	check(t, err)
	var levels []api.LevelVersion
	for _, level := range []api.Level{api.LevelPrivileged, api.LevelBaseline, api.LevelRestricted} {
		levels = append(levels, api.LevelVersion{Level: level, Version: api.LatestVersion()})
		for minor := range 38 { // beyond the newest there is
			levels = append(levels, api.LevelVersion{Level: level, Version: api.MajorMinorVersion(1, minor)})
		}
	}
	ours := map[api.LevelVersion]admission.Chain{}
	for _, at := range levels {
		ours[at] = admission.Chain{podsecurity.New(
			admission.Host{Objects: admissiontest.Objects{"namespaces/ns": &corev1.Namespace{}}},
			podsecurity.Config{Defaults: api.Policy{Enforce: at}},
		)}
	}
	compare := func(t *testing.T, pod *corev1.Pod) {
		t.Helper()
		for _, at := range levels {
			err := ours[at].Admit(t.Context(), &admission.Attributes{
				Operation: admission.Create, Resource: corev1.SchemeGroupVersion.WithResource("pods"), Namespace: "ns", Name: "p", Object: pod,
			}, nil)
			got, want := "", ""
			if err != nil {
				got = err.Error()
			}
			if found := policy.AggregateCheckResults(theirs.EvaluatePod(at, &pod.ObjectMeta, &pod.Spec)); !found.Allowed {
				want = fmt.Sprintf("pods \"p\" is forbidden: violates PodSecurity %q: %s", at.String(), found.ForbiddenDetail())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				text, _ := yaml.Marshal(pod)
				t.Fatalf("%s: upstream (-) and ours (+) differ:\n%s\non\n%s", at.String(), diff, text)
			}
		}
	}
	t.Run("fixtures", func(t *testing.T) {
		pods := fixturePods(t)
		for _, pod := range pods {
			compare(t, pod)
		}
		if len(pods) < 500 {
			t.Errorf("only %d pods were found in the fixtures", len(pods))
		}
	})
	t.Run("random", func(t *testing.T) {
		random := randfill.NewWithSeed(1).NilChance(0.5).NumElements(0, 3).MaxDepth(12).Funcs(
			oneOf("", "container_t", "container_engine_t", "spc_t"), // any string
			oneOf[corev1.SeccompProfileType]("", "RuntimeDefault", "Unconfined", "Localhost", "other"),
			oneOf[corev1.AppArmorProfileType]("", "RuntimeDefault", "Unconfined", "Localhost", "other"),
			oneOf[corev1.Capability]("ALL", "CHOWN", "NET_BIND_SERVICE", "SYS_ADMIN", "NET_RAW"),
			oneOf[corev1.ProcMountType]("Default", "Unmasked", "other"),
			oneOf[corev1.OSName]("linux", "windows"),
			func(id *int64, c randfill.Continue) { *id = c.Int63n(2) },
			func(port *int32, c randfill.Continue) { *port = c.Int31n(3) * 1000 },
			func(s *corev1.Sysctl, c randfill.Continue) {
				names := []string{"kernel.shm_rmid_forced", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_rmem", "net.ipv4.tcp_fin_timeout", "kernel.msgmax"}
				s.Name = names[c.Intn(len(names))]
			},
			func(c *corev1.Container, r randfill.Continue) {
				r.FillNoCustom(c)
				c.Resources = corev1.ResourceRequirements{}
			},
			func(a *corev1.Affinity, r randfill.Continue) {},
			func(m *map[string]string, c randfill.Continue) {
				all := []string{"", "runtime/default", "docker/default", "localhost/x", "unconfined"}
				*m = map[string]string{}
				for _, key := range []string{"container.apparmor.security.beta.kubernetes.io/a", "container.apparmor.security.beta.kubernetes.io/b",
					"seccomp.security.alpha.kubernetes.io/pod", "container.seccomp.security.alpha.kubernetes.io/container_t"} {
					if c.Bool() {
						(*m)[key] = all[c.Intn(len(all))]
					}
				}
			},
		)
		for range 150 {
			pod := &corev1.Pod{}
			random.Fill(&pod.ObjectMeta.Annotations)
			random.Fill(&pod.Spec)
			compare(t, pod)
		}
	})
}

func oneOf[T any](values ...T) func(*T, randfill.Continue) {
	return func(v *T, c randfill.Continue) { *v = values[c.Intn(len(values))] }
}

// fixturePods are the pods upstream's module carries for such tests.
func fixturePods(t *testing.T) []*corev1.Pod {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	check(t, err)
	var pods []*corev1.Pod
	check(t, filepath.WalkDir(filepath.Join(strings.TrimSpace(string(dir)), "test", "testdata"), func(path string, d os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		data, err := os.ReadFile(path)
		check(t, err)
		pod := &corev1.Pod{}
		check(t, yaml.Unmarshal(data, pod))
		pods = append(pods, pod)
		return nil
	}))
	return pods
}
