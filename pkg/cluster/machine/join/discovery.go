package join

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client/bootstraptoken"
	"podium/pkg/client/kubeconfig"
)

// mostSkew is the largest accepted difference between the clocks of two
// machines. Certificates are backdated by five minutes; tokens expire on the
// minute.
const mostSkew = 2 * time.Minute

// Cluster is a cluster that Discover has verified.
type Cluster struct {
	Server string
	CA     []byte // certificate in PEM format
}

// Discover asks the apiserver at https://HOST:PORT for cluster-info and
// verifies that it comes from the cluster that made the token: the token's
// secret must have signed it, and the CA's public key must have one of the
// hashes (none: only the signature counts). now is this machine's clock, which
// must be close to the server's. The caller may retry on ErrUnsigned.
func Discover(ctx context.Context, server string, now time.Time, t bootstraptoken.Token, hashes []string) (Cluster, error) {
	endpoint := strings.TrimPrefix(server, "https://")
	body, date, err := fetchInfo(ctx, server, nil)
	if err != nil {
		return Cluster{}, err
	}
	if err := checkSkew(now, date); err != nil {
		return Cluster{}, err
	}
	cluster, err := verifyInfo(body, t, hashes)
	if err != nil {
		return Cluster{}, err
	}
	// The server may have relayed the answer of another one: ask again, and
	// require a certificate that this CA has signed.
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(cluster.CertificateAuthorityData) {
		return Cluster{}, errors.New("the cluster's authority is not in PEM")
	}
	again, _, err := fetchInfo(ctx, server, pool)
	if err != nil {
		return Cluster{}, fmt.Errorf("the certificate of %s is not by the cluster's authority, or not for this address: %w", endpoint, err)
	}
	if again.Data[bootstraptoken.InfoKey] != body.Data[bootstraptoken.InfoKey] {
		return Cluster{}, fmt.Errorf("%s gave two different answers about the cluster: a machine in between may have changed them", endpoint)
	}
	return Cluster{Server: cluster.Server, CA: cluster.CertificateAuthorityData}, nil
}

// fetchInfo reads the ConfigMap cluster-info without credentials, and the
// server's time. With nil roots it accepts any certificate: verifyInfo checks
// the content.
func fetchInfo(ctx context.Context, server string, roots *x509.CertPool) (*corev1.ConfigMap, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, InsecureSkipVerify: roots == nil}}
	defer transport.CloseIdleConnections()
	url := server + "/api/v1/namespaces/" + metav1.NamespacePublic + "/configmaps/" + bootstraptoken.InfoName
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, time.Time{}, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("%w (is %s the address of a control plane, and reachable from here?)", err, server)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, time.Time{}, err
	}
	date, _ := http.ParseTime(resp.Header.Get("Date"))
	if resp.StatusCode != http.StatusOK {
		return nil, date, fmt.Errorf("%s: %s; is it a cluster made by podium init?", url, resp.Status)
	}
	info := &corev1.ConfigMap{}
	if err := json.Unmarshal(data, info); err != nil {
		return nil, date, fmt.Errorf("%s: %w", url, err)
	}
	return info, date, nil
}

// checkSkew compares our clock with a server's. It accepts a server that sends
// no time.
func checkSkew(now, theirs time.Time) error {
	if theirs.IsZero() {
		return nil
	}
	if skew := now.Sub(theirs); skew.Abs() > mostSkew {
		return fmt.Errorf("this machine's clock (%s) and the control plane's (%s) are %s apart: set them right (apt-get install systemd-timesyncd), then run this again",
			now.UTC().Format(time.RFC3339), theirs.UTC().Format(time.RFC3339), skew.Abs().Round(time.Second))
	}
	return nil
}

// ErrUnsigned means that the cluster has not signed cluster-info with the
// token. It is temporary for a new token, until the signer has seen it.
var ErrUnsigned = errors.New("the cluster has no token")

// verifyInfo checks the signature and the CA's hash of cluster-info. Without
// hashes it checks the signature only.
func verifyInfo(info *corev1.ConfigMap, t bootstraptoken.Token, hashes []string) (kubeconfig.Cluster, error) {
	content := info.Data[bootstraptoken.InfoKey]
	signature, signed := info.Data[bootstraptoken.SignaturePrefix+t.ID]
	if !signed {
		return kubeconfig.Cluster{}, fmt.Errorf("%w with the ID %s: it has ended, or is another cluster's; make one on a control plane's machine: podium token create --print-join-command", ErrUnsigned, t.ID)
	}
	if !t.Verify(signature, []byte(content)) {
		return kubeconfig.Cluster{}, fmt.Errorf("the secret of token %s is wrong (or another server answered for the control plane): copy the whole join command again", t.ID)
	}
	cluster, err := ParseInfo(content)
	if err != nil {
		return kubeconfig.Cluster{}, err
	}
	if len(hashes) == 0 {
		return cluster, nil
	}
	hash, err := HashCA(cluster.CertificateAuthorityData)
	if err != nil {
		return kubeconfig.Cluster{}, err
	}
	if !slices.Contains(hashes, hash) {
		return kubeconfig.Cluster{}, fmt.Errorf("the cluster's authority has the hash %s, not one of %s: this is another cluster, or another server answered for it; compare with what podium token create --print-join-command prints there", hash, strings.Join(hashes, ", "))
	}
	return cluster, nil
}

// ParseInfo parses the kubeconfig in cluster-info, which has exactly one
// cluster and no credentials.
func ParseInfo(content string) (kubeconfig.Cluster, error) {
	config, err := kubeconfig.Parse([]byte(content), "")
	if err != nil {
		return kubeconfig.Cluster{}, fmt.Errorf("ConfigMap %s: %w", bootstraptoken.InfoName, err)
	}
	if len(config.Clusters) != 1 || !strings.HasPrefix(config.Clusters[0].Value.Server, "https://") {
		return kubeconfig.Cluster{}, fmt.Errorf("ConfigMap %s has no cluster address", bootstraptoken.InfoName)
	}
	return config.Clusters[0].Value, nil
}

const hashPrefix = "sha256:"

// HashCA returns the hash of a CA's public key, in kubeadm's format. data is a
// certificate in PEM format.
func HashCA(data []byte) (string, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return "", errors.New("the cluster's authority is not in PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("parse the cluster's authority: %w", err)
	}
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return hashPrefix + hex.EncodeToString(sum[:]), nil
}

// CheckHash returns an error unless text has the format of HashCA.
func CheckHash(text string) error {
	digits, ok := strings.CutPrefix(text, hashPrefix)
	if raw, err := hex.DecodeString(digits); !ok || err != nil || len(raw) != sha256.Size {
		return fmt.Errorf("--discovery-token-ca-cert-hash %q: want sha256: and 64 hexadecimal digits", text)
	}
	return nil
}
