package machine

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"podium/pkg/cluster/pki"
)

// soon is the remaining lifetime below which CheckCertificates warns.
const soon = 30 * 24 * time.Hour

// held is a certificate on this machine.
type held struct {
	name      string
	authority bool
	until     time.Time
	by        string
	problem   string
}

// CheckCertificates prints to cfg.Out when each certificate of this machine
// expires, and which certificates are revoked. It returns an error if the
// machine has no certificates, or if one has expired or cannot be read. It does
// not contact the cluster.
func CheckCertificates(_ context.Context, cfg Config, host Host) error {
	m := &machine{Config: cfg, host: host} // the checks read files and the clock only
	all, err := m.held()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("there are no certificates below %s: this machine is in no cluster", pkiDir)
	}
	bad := 0
	fmt.Fprintf(m.Out, "%-28s %-22s %-10s %-12s %s\n", "CERTIFICATE", "EXPIRES", "RESIDUAL", "AUTHORITY", "")
	for _, h := range all {
		left, note := h.until.Sub(m.Now()), h.problem
		switch {
		case note != "":
			bad++
		case left <= 0:
			note = "has expired: " + m.remedy(h)
			bad++
		case left < soon:
			note = "expires soon: " + m.remedy(h)
		}
		fmt.Fprintf(m.Out, "%-28s %-22s %-10s %-12s %s\n", h.name, h.until.UTC().Format(time.RFC3339), days(left), h.by, note)
	}
	if err := m.showRevoked(); err != nil {
		return err
	}
	moving, err := m.moving()
	if err != nil {
		return err
	}
	if moving {
		fmt.Fprintln(m.Out, "\nThe cluster's CA is still trusted for kubelets' serving certificates: podium certs renew --expiring shows what it waits for.")
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d certificates have expired or are invalid", bad, len(all))
	}
	return nil
}

// remedy returns the advice for a certificate that expires or has expired. The
// kubelet of a joined machine renews its certificate through the cluster while
// that is valid; afterwards it needs a new token.
func (m *machine) remedy(h held) string {
	switch {
	case h.authority:
		return "replace the authority"
	case !m.signs():
		return "join again with a new token (podium token create --print-join-command, on a control plane's machine)"
	}
	return "podium certs renew"
}

// signs reports whether this machine signs its own certificates, as control planes do,
// also while the key of the cluster CA is kept elsewhere.
func (m *machine) signs() bool {
	return slices.ContainsFunc([]string{"ca.key", "apiserver.crt"}, func(name string) bool {
		_, err := os.Stat(m.at(pkiDir, name))
		return err == nil
	})
}

func days(d time.Duration) string { return fmt.Sprintf("%dd", int(d.Hours()/24)) }

// held reads every certificate below the PKI directory and the kubelet's. CAs
// come first, then names in order. A file that cannot be parsed is in the list
// with its problem set.
func (m *machine) held() (all []held, err error) {
	for _, dir := range []string{pkiDir, kubeletCerts} {
		root := m.at(dir)
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			current := strings.HasSuffix(path, "-current.pem")
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || d.IsDir() || filepath.Ext(path) != ".crt" && !current {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			all = append(all, readHeld(strings.TrimSuffix(name, filepath.Ext(name)), path))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b held) int {
		if a.authority != b.authority {
			return map[bool]int{true: -1, false: 1}[a.authority]
		}
		return strings.Compare(a.name, b.name)
	})
	return all, nil
}

// readHeld reads the first certificate of the PEM file at path. Errors are in
// the result's problem.
func readHeld(name, path string) held {
	out := held{name: name}
	data, err := os.ReadFile(path)
	if err != nil {
		out.problem = err.Error()
		return out
	}
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			out.problem = "holds no certificate"
			return out
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			out.problem = err.Error()
			return out
		}
		out.authority, out.until, out.by = cert.IsCA, cert.NotAfter, cert.Issuer.CommonName
		return out
	}
}

// RenewOptions select the certificates that RenewCertificates renews.
type RenewOptions struct {
	Expiring bool // only those in the last third of their lifetime; no error on a worker
}

// RenewCertificates renews the certificates that this machine can sign, and the
// administrator's kubeconfig. It leaves the CAs alone: new ones would make
// every client's certificate invalid. The daemons reload the files by
// themselves. On a worker it returns an error, unless o.Expiring is set.
// It also continues the move to the kubelet CA, if one is under way (see
// kubelet_ca.go).
func RenewCertificates(ctx context.Context, cfg Config, host Host, o RenewOptions) error {
	m, err := loadMachine(cfg, host)
	if err != nil {
		return err
	}
	if !m.signs() {
		if o.Expiring {
			fmt.Fprintln(m.Out, "the certificates of this machine are its kubelet's, which renews them by itself")
			return nil
		}
		return errors.New("this machine signs no certificates: it is no control plane; its kubelet renews its certificates by itself")
	}
	var errs []error
	for _, c := range m.controlPlaneCertificates() {
		errs = append(errs, m.renew(c, o)) // one CA's key may be kept elsewhere: the others still sign
	}
	return errors.Join(append(errs, m.goOnMoving(ctx))...)
}

// renew renews one certificate and its kubeconfig, and prints the expiry date.
// With o.Expiring it keeps a certificate that is valid for long enough.
func (m *machine) renew(c certificate, o RenewOptions) error {
	ca, err := m.authorityOf(c)
	if err != nil {
		return err
	}
	issue := ca.Renew
	if o.Expiring {
		issue = ca.Issue
	}
	certFile, _ := pki.Files(m.at(pkiDir), c.name)
	before := readHeld(c.name, certFile)
	if err := issue(m.at(pkiDir), c.name, c.id); err != nil {
		return err
	}
	after, note := readHeld(c.name, certFile), "renewed, "
	if after.until.Equal(before.until) {
		note = ""
	}
	fmt.Fprintf(m.Out, "%-28s %sgood until %s\n", c.name, note, after.until.UTC().Format(time.RFC3339))
	if c.kubeconfig == "" {
		return nil
	}
	return m.writeKubeconfig(c)
}
