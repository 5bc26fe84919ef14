package machine

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

	"podium/pkg/client/bootstraptoken"
	"podium/pkg/client/kubeconfig"
)

// How far the clocks of two machines may be apart: certificates are backdated
// by five minutes, tokens end on the minute.
const mostSkew = 2 * time.Minute

// found is what a machine that joins knows of the cluster, once it is sure of it.
type found struct {
	server string
	ca     []byte // PEM
}

// discover asks the endpoint where the cluster is and makes sure that it is
// the one that made the token: the answer must be signed with the token's
// secret, and its authority's key must have one of the hashes.
func (m *machine) discover(ctx context.Context, t bootstraptoken.Token, hashes []string) (found, error) {
	body, date, err := fetchInfo(ctx, m.server(), nil)
	if err != nil {
		return found{}, err
	}
	if err := checkSkew(m.Now(), date); err != nil {
		return found{}, err
	}
	cluster, err := verifyInfo(body, t, hashes)
	if err != nil {
		return found{}, err
	}
	// Who answered may have passed on another's words: ask again, of the holder
	// of a certificate by that authority.
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(cluster.CertificateAuthorityData) {
		return found{}, errors.New("the cluster's authority is not in PEM")
	}
	again, _, err := fetchInfo(ctx, m.server(), pool)
	if err != nil {
		return found{}, fmt.Errorf("the certificate of %s is not by the cluster's authority, or not for this address: %w", m.Endpoint, err)
	}
	if again.Data[infoKey] != body.Data[infoKey] {
		return found{}, fmt.Errorf("%s gave two different answers about the cluster: somebody may be between it and this machine", m.Endpoint)
	}
	return found{server: cluster.Server, ca: cluster.CertificateAuthorityData}, nil
}

// fetchInfo reads the ConfigMap cluster-info as nobody. Without roots any
// certificate is taken: what comes back is checked by its content.
func fetchInfo(ctx context.Context, server string, roots *x509.CertPool) (*corev1.ConfigMap, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, InsecureSkipVerify: roots == nil}}
	defer transport.CloseIdleConnections()
	url := server + "/api/v1/namespaces/" + publicNamespace + "/configmaps/" + infoName
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

// checkSkew compares our clock with a server's. A server that says nothing is
// not argued with.
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

// errUnsigned may pass: a token that was just made takes the signer a moment.
var errUnsigned = errors.New("the cluster knows no token")

// verifyInfo checks what cluster-info says by the token and the hashes. No
// hashes: by the token alone.
func verifyInfo(info *corev1.ConfigMap, t bootstraptoken.Token, hashes []string) (kubeconfig.Cluster, error) {
	content := info.Data[infoKey]
	signature, signed := info.Data[signaturePart+t.ID]
	if !signed {
		return kubeconfig.Cluster{}, fmt.Errorf("%w with the ID %s: it has ended, or is another cluster's; make one on a control plane's machine: podium token create --print-join-command", errUnsigned, t.ID)
	}
	if !t.Verify(signature, []byte(content)) {
		return kubeconfig.Cluster{}, fmt.Errorf("the secret of token %s is wrong (or somebody else answered for the control plane): copy the whole join command again", t.ID)
	}
	cluster, err := parseInfo(content)
	if err != nil {
		return kubeconfig.Cluster{}, err
	}
	if len(hashes) == 0 {
		return cluster, nil
	}
	hash, err := hashAuthority(cluster.CertificateAuthorityData)
	if err != nil {
		return kubeconfig.Cluster{}, err
	}
	if !slices.Contains(hashes, hash) {
		return kubeconfig.Cluster{}, fmt.Errorf("the cluster's authority has the hash %s, not one of %s: this is another cluster, or somebody answered for it; compare with what podium token create --print-join-command prints there", hash, strings.Join(hashes, ", "))
	}
	return cluster, nil
}

// parseInfo reads the kubeconfig in cluster-info: one cluster, nobody's credentials.
func parseInfo(content string) (kubeconfig.Cluster, error) {
	config, err := kubeconfig.Parse([]byte(content), "")
	if err != nil {
		return kubeconfig.Cluster{}, fmt.Errorf("ConfigMap %s: %w", infoName, err)
	}
	if len(config.Clusters) != 1 || !strings.HasPrefix(config.Clusters[0].Value.Server, "https://") {
		return kubeconfig.Cluster{}, fmt.Errorf("ConfigMap %s does not say where the cluster is", infoName)
	}
	return config.Clusters[0].Value, nil
}

const hashPrefix = "sha256:"

// hashAuthority is the hash of an authority's public key, as kubeadm counts it.
func hashAuthority(data []byte) (string, error) {
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

// checkHash says whether a hash can be one.
func checkHash(text string) error {
	digits, ok := strings.CutPrefix(text, hashPrefix)
	if raw, err := hex.DecodeString(digits); !ok || err != nil || len(raw) != sha256.Size {
		return fmt.Errorf("--discovery-token-ca-cert-hash %q: want sha256: and 64 hexadecimal digits", text)
	}
	return nil
}
