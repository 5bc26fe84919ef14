package machine

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"podium/pkg/client/bootstraptoken"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/cluster/machine/join"
	"podium/pkg/cluster/pki"
)

// sign returns the signature that the bootstrap signer would write to
// cluster-info.
func sign(content string, t bootstraptoken.Token) string {
	header := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":"` + t.ID + `"}`))
	mac := hmac.New(sha256.New, []byte(t.Secret))
	mac.Write([]byte(header + "." + base64.RawURLEncoding.EncodeToString([]byte(content))))
	return header + ".." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// clusterInfo returns the cluster-info of a cluster whose CA is in dir, signed
// with the tokens.
func clusterInfo(t *testing.T, dir, server string, tokens ...bootstraptoken.Token) *corev1.ConfigMap {
	t.Helper()
	if _, err := pki.OpenAuthority(dir, "ca", time.Now); err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(dir + "/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	content, err := yaml.Marshal(kubeconfig.Config{Clusters: []kubeconfig.Named[kubeconfig.Cluster]{
		{Value: kubeconfig.Cluster{Server: server, CertificateAuthorityData: ca}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	info := &corev1.ConfigMap{Data: map[string]string{join.InfoKey: string(content)}}
	for _, token := range tokens {
		info.Data["jws-kubeconfig-"+token.ID] = sign(string(content), token)
	}
	return info
}
