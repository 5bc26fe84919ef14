package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

const tokenDir = "/var/run/secrets/kubernetes.io/serviceaccount"

func account(t *testing.T, ctx context.Context, namespace, name string, automount *bool) *corev1.ServiceAccount {
	t.Helper()
	made, err := admin.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": namespace}}, AutomountServiceAccountToken: automount,
	}, metav1.CreateOptions{})
	check(t, err)
	return made
}

func tokenFor(t *testing.T, ctx context.Context, namespace, name string, spec authentication.TokenRequestSpec) string {
	t.Helper()
	made, err := admin.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authentication.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	check(t, err)
	if made.Status.Token == "" {
		t.Fatal("the token is empty")
	}
	return made.Status.Token
}

func review(t *testing.T, ctx context.Context, token string) authentication.TokenReviewStatus {
	t.Helper()
	out, err := admin.AuthenticationV1().TokenReviews().Create(ctx, &authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	check(t, err)
	return out.Status
}

// automountOptOut goes through all words that an account and a pod may say.
func automountOptOut(t *testing.T, ctx context.Context, namespace string) {
	yes, no := true, false
	name := map[*bool]string{nil: "nil", &yes: "true", &no: "false"}
	for _, ofAccount := range []*bool{nil, &yes, &no} {
		account(t, ctx, namespace, name[ofAccount], ofAccount)
		for _, ofPod := range []*bool{nil, &yes, &no} {
			pod := sleeper(namespace, fmt.Sprintf("account-%s-pod-%s", name[ofAccount], name[ofPod]))
			pod.Spec.ServiceAccountName, pod.Spec.AutomountServiceAccountToken = name[ofAccount], ofPod
			pod.Spec.NodeSelector = map[string]string{"no": "node"}
			made, err := admin.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
			check(t, err)
			want := ofAccount != &no
			if ofPod != nil {
				want = *ofPod
			}
			has := slices.ContainsFunc(made.Spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tokenDir })
			if has != want {
				t.Errorf("%s: the token is mounted: %t, want %t", pod.Name, has, want)
			}
		}
	}
}

func tokenReview(t *testing.T, ctx context.Context, namespace string) {
	account(t, ctx, namespace, "x", nil)
	status := review(t, ctx, tokenFor(t, ctx, namespace, "x", authentication.TokenRequestSpec{}))
	if !status.Authenticated || status.Error != "" || status.User.Username != "system:serviceaccount:"+namespace+":x" {
		t.Errorf("%+v", status)
	}
}

func rootCA(t *testing.T, ctx context.Context, namespace string) {
	maps := admin.CoreV1().ConfigMaps(namespace)
	there := func() error {
		m, err := maps.Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if err == nil && !strings.Contains(m.Data["ca.crt"], "BEGIN CERTIFICATE") {
			err = fmt.Errorf("it holds %v", m.Data)
		}
		return err
	}
	eventually(t, ctx, "the namespace has its CA", there)
	check(t, maps.Delete(ctx, "kube-root-ca.crt", metav1.DeleteOptions{}))
	eventually(t, ctx, "it is made again", there)
	m, err := maps.Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
	check(t, err)
	m.Data = map[string]string{"ca.crt": "tampered"}
	_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
	check(t, err)
	eventually(t, ctx, "it is put right", there)
}

func tokenFiles(t *testing.T, ctx context.Context, namespace string) {
	account(t, ctx, namespace, "x", nil)
	pod := sleeper(namespace, "reader")
	pod.Spec.ServiceAccountName = "x"
	pod = run(t, ctx, pod)
	file := func(name string) string { return exec(t, ctx, pod, "c", "cat", tokenDir+"/"+name) }
	if got := file("namespace"); got != namespace {
		t.Errorf("the file namespace says %q", got)
	}
	root, err := admin.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
	check(t, err)
	if file("ca.crt") != root.Data["ca.crt"] {
		t.Error("ca.crt is not what kube-root-ca.crt holds")
	}
	status := review(t, ctx, file("token"))
	want := []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
	for _, group := range want {
		if !slices.Contains(status.User.Groups, group) {
			t.Errorf("not in %s: %v", group, status.User.Groups)
		}
	}
	if !status.Authenticated || status.User.Username != "system:serviceaccount:"+namespace+":x" {
		t.Errorf("%+v", status)
	}
}

func tokenProjected(t *testing.T, ctx context.Context, namespace string) {
	seconds := int64(600)
	pod := sleeper(namespace, "reader")
	pod.Spec.Volumes = []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "mine", ExpirationSeconds: &seconds}}},
	}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "token", MountPath: "/var/run/token"}}
	pod = run(t, ctx, pod)
	if got := exec(t, ctx, pod, "c", "cat", "/var/run/token/mine"); strings.Count(got, ".") != 2 {
		t.Errorf("the file holds %d bytes, which are no token", len(got))
	}
}

func accountLifecycle(t *testing.T, ctx context.Context, namespace string) {
	accounts, label := admin.CoreV1().ServiceAccounts(namespace), metav1.ListOptions{LabelSelector: "of=" + namespace}
	watching, err := accounts.Watch(ctx, label)
	check(t, err)
	defer watching.Stop()
	account(t, ctx, namespace, "x", nil)
	saw(t, ctx, watching, watch.Added, "")
	patched, err := accounts.Patch(ctx, "x", types.StrategicMergePatchType, []byte(`{"automountServiceAccountToken":false}`), metav1.PatchOptions{})
	check(t, err)
	if patched.AutomountServiceAccountToken == nil || *patched.AutomountServiceAccountToken {
		t.Error("the patch is not in the answer")
	}
	all, err := admin.CoreV1().ServiceAccounts("").List(ctx, label)
	check(t, err)
	if len(all.Items) != 1 || all.Items[0].Namespace != namespace {
		t.Errorf("of all namespaces: %d", len(all.Items))
	}
	check(t, accounts.DeleteCollection(ctx, metav1.DeleteOptions{}, label))
	saw(t, ctx, watching, watch.Deleted, "")
}

func accountUpdate(t *testing.T, ctx context.Context, namespace string) {
	no := false
	made := account(t, ctx, namespace, "x", &no)
	yes := true
	made.AutomountServiceAccountToken = &yes
	if _, err := admin.CoreV1().ServiceAccounts(namespace).Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := admin.CoreV1().ServiceAccounts(namespace).Get(ctx, "x", metav1.GetOptions{})
	if err != nil || got.AutomountServiceAccountToken == nil || !*got.AutomountServiceAccountToken {
		t.Errorf("%+v, %v", got, err)
	}
}
