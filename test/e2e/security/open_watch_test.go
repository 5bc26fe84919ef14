package security

import (
	"io"
	"net/url"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/remotecommand"
)

// follow opens a stream and returns a channel that is closed when it ends.
func follow(t *testing.T, c *client.Client, path string, query url.Values) chan struct{} {
	t.Helper()
	resp, err := c.Stream(t.Context(), client.Request{Path: path, Query: query})
	check(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, resp.Body) // the reason does not matter
	}()
	return ended
}

// execute runs an endless command in the pod and returns a channel that is closed when the
// stream ends.
func execute(t *testing.T, c *client.Client, path string) chan struct{} {
	t.Helper()
	started, ended := make(chan struct{}), make(chan struct{})
	out, in := io.Pipe()
	go func() {
		_, _ = out.Read(make([]byte, 1))
		close(started)
		_, _ = io.Copy(io.Discard, out)
	}()
	go func() {
		defer close(ended)
		err := remotecommand.Stream(t.Context(), c, path, url.Values{"command": {"sh", "-c", "echo started; exec sleep 3600"}}, remotecommand.Streams{Out: in})
		t.Logf("%s ended: %v", path, err)
	}()
	select {
	case <-started:
	case <-ended:
		t.Fatal("exec ended before its command ran")
	case <-time.After(time.Minute):
		t.Fatal("the command did not start within a minute")
	}
	return ended
}

func ends(t *testing.T, what string, ended chan struct{}) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Errorf("%s: the stream is still open after a minute", what)
	}
}

// Open streams end when the binding, or the account, that allowed them is deleted.
func TestOpenWatchIsReauthorized(t *testing.T) {
	ns, ctx := space(t), t.Context()
	accounts, bindings := client.For[*corev1.ServiceAccount](admin).In(ns), client.For[*rbacv1.RoleBinding](admin).In(ns)
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"watch"}},
		{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"pods/exec"}, Verbs: []string{"create", "get"}},
	}
	clients := map[string]*client.Client{}
	for _, name := range []string{"unbound", "deleted", "kept"} {
		_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}})
		check(t, err)
		var out authenticationv1.TokenRequest
		check(t, accounts.Post(ctx, name, "token", &authenticationv1.TokenRequest{}, &out))
		allow(t, ns, "system:serviceaccount:"+ns+":"+name, rules...)
		clients[name] = withToken(t, out.Status.Token)
	}
	p := pod("node-a", "talker", "none")
	p.Spec.Volumes = nil
	_, err := client.For[*corev1.Pod](admin).In(ns).Create(ctx, p)
	check(t, err)
	eventually(t, "the pod runs", func() error {
		got, err := client.For[*corev1.Pod](admin).In(ns).Get(ctx, "talker")
		if err == nil && got.Status.Phase != corev1.PodRunning {
			err = errNotYet
		}
		return err
	})
	exec := "/api/v1/namespaces/" + ns + "/pods/talker/exec"
	secrets, logs := "/api/v1/namespaces/"+ns+"/secrets", "/api/v1/namespaces/"+ns+"/pods/talker/log"
	open := map[string][]chan struct{}{}
	for name, c := range clients {
		open[name] = []chan struct{}{
			follow(t, c, secrets, url.Values{"watch": {"true"}, "timeoutSeconds": {"1800"}}),
			follow(t, c, logs, url.Values{"follow": {"true"}}),
			execute(t, c, exec),
		}
	}
	check(t, bindings.Delete(ctx, "system-serviceaccount-"+ns+"-unbound", metav1.DeleteOptions{}))
	check(t, accounts.Delete(ctx, "deleted", metav1.DeleteOptions{}))
	for _, name := range []string{"unbound", "deleted"} {
		ends(t, "the watch of "+name, open[name][0])
		ends(t, "the log of "+name, open[name][1])
		ends(t, "the exec of "+name, open[name][2])
	}
	for i, ended := range open["kept"] {
		select {
		case <-ended:
			t.Errorf("stream %d of an account that is still allowed has ended", i)
		default:
		}
	}
}
