package join

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"podium/pkg/client/bootstraptoken"
	"podium/pkg/client/kubeconfig"
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
	info := &corev1.ConfigMap{Data: map[string]string{bootstraptoken.InfoKey: string(content)}}
	for _, token := range tokens {
		info.Data[bootstraptoken.SignaturePrefix+token.ID] = sign(string(content), token)
	}
	return info
}

// TestOnlyTheRightClusterIsJoined checks that a machine rejects answers that
// lack the token's signature or the CA's hash.
func TestOnlyTheRightClusterIsJoined(t *testing.T) {
	ours := bootstraptoken.Token{ID: "abcdef", Secret: "0123456789abcdef"}
	dir := t.TempDir()
	right := clusterInfo(t, dir, "https://192.0.2.10:6443", ours)
	ca, err := os.ReadFile(dir + "/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	hash, err := HashCA(ca)
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		reason string
		token  bootstraptoken.Token
		hashes []string
		spoil  func(info *corev1.ConfigMap)
		want   string // part of the error; empty: the answer is accepted
	}{
		"Right":       {reason: "token and hash fit", token: ours, hashes: []string{hash}},
		"OneOfHashes": {reason: "while an authority is replaced there are two", token: ours, hashes: []string{"sha256:" + strings.Repeat("0", 64), hash}},
		"NoHash":      {reason: "asked for by the operator", token: ours},
		"ExpiredToken": {
			reason: "the signature goes with the token",
			token:  bootstraptoken.Token{ID: "zzzzzz", Secret: "0123456789abcdef"}, hashes: []string{hash},
			want: "has no token with the ID zzzzzz: it has ended",
		},
		"WrongSecret": {
			reason: "a mistake in typing, or an impostor",
			token:  bootstraptoken.Token{ID: "abcdef", Secret: "fedcba9876543210"}, hashes: []string{hash},
			want: "the secret of token abcdef is wrong",
		},
		"WrongHash": {
			reason: "another cluster, or an impostor who knows the token",
			token:  ours, hashes: []string{"sha256:" + strings.Repeat("1", 64)},
			want: "this is another cluster, or another server answered for it",
		},
		"Altered": {
			reason: "what is signed is the whole content",
			token:  ours, hashes: []string{hash},
			spoil: func(info *corev1.ConfigMap) {
				info.Data[bootstraptoken.InfoKey] = strings.Replace(info.Data[bootstraptoken.InfoKey], "192.0.2.10", "198.51.100.1", 1)
			},
			want: "the secret of token abcdef is wrong",
		},
		"NoAlgorithm": {
			reason: "a header that says there is no signature is no signature",
			token:  ours, hashes: []string{hash},
			spoil: func(info *corev1.ConfigMap) {
				info.Data[bootstraptoken.SignaturePrefix+"abcdef"] = base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"abcdef"}`)) + ".."
			},
			want: "is wrong",
		},
	} {
		t.Run(name, func(t *testing.T) {
			info := right.DeepCopy()
			if row.spoil != nil {
				row.spoil(info)
			}
			_, err := verifyInfo(info, row.token, row.hashes)
			switch {
			case row.want == "" && err != nil:
				t.Errorf("%s: %v", row.reason, err)
			case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
				t.Errorf("%s: got %v, want %q", row.reason, err, row.want)
			case err != nil && strings.Contains(err.Error(), row.token.Secret):
				t.Errorf("the complaint shows the token's secret: %v", err)
			}
		})
	}
}

func TestClocksApart(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for skew, bad := range map[time.Duration]bool{0: false, time.Minute: false, -time.Minute: false, 10 * time.Minute: true, -24 * time.Hour: true} {
		err := checkSkew(now, now.Add(skew))
		if (err != nil) != bad {
			t.Errorf("%s apart: %v", skew, err)
		}
		if bad && !strings.Contains(err.Error(), "timesyncd") {
			t.Errorf("%v does not say what to do", err)
		}
	}
	if err := checkSkew(now, time.Time{}); err != nil {
		t.Errorf("a server that tells no time: %v", err)
	}
}

func FuzzSignature(f *testing.F) {
	t := bootstraptoken.Token{ID: "abcdef", Secret: "0123456789abcdef"}
	right := sign("content", t)
	f.Add(right, "content")
	f.Add("..", "")
	f.Add("eyJhbGciOiJub25lIn0..", "content")
	f.Fuzz(func(tt *testing.T, signature, content string) {
		if t.Verify(signature, []byte(content)) && (content != "content" || !strings.HasSuffix(signature, right[strings.LastIndexByte(right, '.'):])) {
			tt.Errorf("%q was taken for a signature of %q", signature, content)
		}
	})
}
