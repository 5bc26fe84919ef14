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

// soon is when a certificate's end is near enough to say so.
const soon = 30 * 24 * time.Hour

// held is a certificate on this machine.
type held struct {
	name      string
	authority bool
	until     time.Time
	by        string
	problem   string
}

// CheckCertificates prints until when each certificate of this machine is
// good. It is an error when one has ended, or cannot be read.
func CheckCertificates(_ context.Context, cfg Config, host Host) error {
	m, err := newMachine(cfg, host)
	if err != nil {
		return err
	}
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
			note = "has ended: podium certs renew"
			bad++
		case left < soon:
			note = "ends soon: podium certs renew"
		}
		fmt.Fprintf(m.Out, "%-28s %-22s %-10s %-12s %s\n", h.name, h.until.UTC().Format(time.RFC3339), days(left), h.by, note)
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d certificates are of no use any more", bad, len(all))
	}
	return nil
}

func days(d time.Duration) string { return fmt.Sprintf("%dd", int(d.Hours()/24)) }

// held reads every certificate below the PKI's folder and the kubelet's.
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

// RenewCertificates makes every certificate anew that this machine can sign,
// and the administrator's kubeconfig. The daemons read the new ones by
// themselves. The authorities stay: new ones would shut everybody out.
func RenewCertificates(_ context.Context, cfg Config, host Host) error {
	m, err := recall(cfg, host)
	if err != nil {
		return err
	}
	if _, err := os.Stat(m.at(pkiDir, "ca.key")); err != nil {
		return errors.New("this machine has no authority's key: it is no control plane; its kubelet renews its certificates by itself")
	}
	for _, c := range m.controlPlaneCertificates() {
		ca, err := m.authority(c.authority)
		if err != nil {
			return err
		}
		if err := ca.Renew(m.at(pkiDir), c.name, c.id); err != nil {
			return err
		}
		if c.kubeconfig != "" {
			if err := m.writeKubeconfig(c); err != nil {
				return err
			}
		}
		certFile, _ := pki.Files(m.at(pkiDir), c.name)
		fmt.Fprintf(m.Out, "%-28s good until %s\n", c.name, readHeld(c.name, certFile).until.UTC().Format(time.RFC3339))
	}
	return nil
}
