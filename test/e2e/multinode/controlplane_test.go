package multinode

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/client"
)

// What a further control plane needs is shared for as long as the token that
// is printed with it, and is of no use to who reads it.
func TestSharedKeysGoWithTheirToken(t *testing.T) {
	command, err := docker(t.Context(), "exec", plane, "podium", "certs", "upload")
	if err != nil {
		t.Fatal(err)
	}
	token := regexp.MustCompile(`--token (\w{6})\.`).FindStringSubmatch(command)
	if token == nil || !regexp.MustCompile(`--control-plane --certificate-key [0-9a-f]{64}$`).MatchString(command) {
		t.Fatalf("this is no command by which a control plane joins: %d bytes", len(command))
	}
	secrets := client.For[*corev1.Secret](the.client(t)).In("kube-system")
	shared, err := secrets.Get(t.Context(), "podium-certs")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range shared.Data {
		if regexp.MustCompile(`KEY|CERTIFICATE|secretbox|aescbc`).Match(data) {
			t.Errorf("%s is there for all to read", name)
		}
	}
	if _, err := docker(t.Context(), "exec", plane, "podium", "token", "delete", token[1]); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the keys are gone with their token", func(ctx context.Context) error {
		if _, err := secrets.Get(ctx, "podium-certs"); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is there"), err)
		}
		return nil
	})
}
