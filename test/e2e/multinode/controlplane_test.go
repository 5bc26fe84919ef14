package multinode

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/test/e2e/docked"
)

// The keys for a further control plane are shared as long as the token that is printed with
// them is valid, and are useless to readers without the key.
func TestSharedKeysGoWithTheirToken(t *testing.T) {
	command, err := docked.Docker(t.Context(), "exec", plane, "podium", "certs", "upload")
	if err != nil {
		t.Fatal(err)
	}
	token := regexp.MustCompile(`^echo (\w{6})\.\w{16} [0-9a-f]{64} \| podium join .* --token-file - --control-plane --certificate-key-file -$`).FindStringSubmatch(command)
	if token == nil {
		t.Fatalf("this is no command by which a control plane joins: %d bytes", len(command))
	}
	secrets := client.For[*corev1.Secret](the.Client(t)).In("kube-system")
	shared, err := secrets.Get(t.Context(), "podium-certs")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range shared.Data {
		if regexp.MustCompile(`KEY|CERTIFICATE|secretbox|aescbc`).Match(data) {
			t.Errorf("%s is there for all to read", name)
		}
	}
	if _, err := docked.Docker(t.Context(), "exec", plane, "podium", "token", "delete", token[1]); err != nil {
		t.Fatal(err)
	}
	docked.Eventually(t, 20*time.Second, "the keys are gone with their token", func(ctx context.Context) error {
		if _, err := secrets.Get(ctx, "podium-certs"); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is there"), err)
		}
		return nil
	})
}

// All users of the host, or of a node, can read the command lines of all processes.
func TestTokensAreNotAmongArguments(t *testing.T) {
	if joins := whileCreated.With("podium join "); len(joins) == 0 {
		t.Error("no node was seen to join")
	}
	tokens, err := client.For[*corev1.Secret](the.Client(t)).In("kube-system").List(t.Context(), metav1.ListOptions{FieldSelector: "type=bootstrap.kubernetes.io/token"})
	if err != nil {
		t.Fatal(err)
	}
	if len(tokens.Items) < 2 { // of init, of the workers' join
		t.Errorf("there are %d tokens", len(tokens.Items))
	}
	for _, s := range tokens.Items {
		for _, command := range whileCreated.With(string(s.Data["token-secret"])) {
			t.Errorf("everybody has read the token %s in the arguments of %s", s.Data["token-id"], command[:min(60, len(command))])
		}
	}
}
