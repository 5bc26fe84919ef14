package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// check is a check of the benchmark. run returns the reason why it passes, or
// an error with the reason why it fails.
type check struct {
	id, title string
	run       func(c *cluster) (why string, err error)
}

// closed requires files to belong to root and to have none of the permission
// bits. It skips files whose path ends with one of but.
func closed(pattern string, bits fs.FileMode, but ...string) func(*cluster) (string, error) {
	return func(c *cluster) (string, error) {
		files, err := c.files(pattern)
		if err != nil {
			return "", err
		}
		n := 0
		for path, info := range files {
			if slices.ContainsFunc(but, func(end string) bool { return strings.HasSuffix(path, end) }) || info.IsDir() && bits != 0o077 {
				continue
			}
			n++
			if info.Mode().Perm()&bits != 0 {
				return "", fmt.Errorf("%s has mode %v", path, info.Mode())
			}
			if uid := info.Sys().(*syscall.Stat_t).Uid; uid != 0 {
				return "", fmt.Errorf("%s belongs to user %d", path, uid)
			}
		}
		if n == 0 {
			return "", fmt.Errorf("there is nothing to look at in %s", pattern)
		}
		return fmt.Sprintf("%d files of %s, root's", n, filepath.Base(pattern)), nil
	}
}

// is requires a flag to have one of the values.
func is(of, flag string, values ...string) func(*cluster) (string, error) {
	return func(c *cluster) (string, error) {
		if !c.knows(of, flag) {
			return "", fmt.Errorf("%s has no --%s", of, flag)
		}
		got := c.setting(of, flag)
		if got == "" {
			got = "false" // help texts do not show this default
		}
		if !slices.Contains(values, got) {
			return "", fmt.Errorf("--%s=%s", flag, got)
		}
		return fmt.Sprintf("--%s=%s", flag, got), nil
	}
}

// admits requires an admission plugin to exist and not to be disabled.
func admits(plugin string) func(*cluster) (string, error) {
	return func(c *cluster) (string, error) {
		if !strings.Contains(c.plugins, plugin) {
			return "", errors.New("there is no such plugin")
		}
		return lists("kube-apiserver", "disable-admission-plugins", plugin, false)(c)
	}
}

// set requires flags to have a value.
func set(of string, flags ...string) func(*cluster) (string, error) {
	return func(c *cluster) (string, error) {
		for _, flag := range flags {
			if c.setting(of, flag) == "" {
				return "", fmt.Errorf("--%s is not set", flag)
			}
		}
		return "--" + strings.Join(flags, ", --"), nil
	}
}

// absent requires a daemon not to have a dangerous flag.
func absent(of, flag string) func(*cluster) (string, error) {
	return func(c *cluster) (string, error) {
		if c.knows(of, flag) {
			return "", fmt.Errorf("--%s exists: look at what it says", flag)
		}
		return "there is no such flag", nil
	}
}

// lists requires a comma-separated flag to contain a value, or not to if wanted
// is false.
func lists(of, flag, value string, wanted bool) func(*cluster) (string, error) {
	return func(c *cluster) (string, error) {
		got := c.setting(of, flag)
		if slices.Contains(strings.Split(got, ","), value) != wanted {
			return "", fmt.Errorf("--%s=%s", flag, got)
		}
		return fmt.Sprintf("--%s=%s", flag, got), nil
	}
}

// atLeast requires a number that is not below bound.
func atLeast(of, flag string, bound int) func(*cluster) (string, error) {
	return func(c *cluster) (string, error) {
		got := c.setting(of, flag)
		if n, err := strconv.Atoi(got); err != nil || n < bound {
			return "", fmt.Errorf("--%s=%s, at least %d is wanted", flag, got, bound)
		}
		return fmt.Sprintf("--%s=%s", flag, got), nil
	}
}

// both requires all of several checks to pass.
func both(all ...func(*cluster) (string, error)) func(*cluster) (string, error) {
	return func(c *cluster) (string, error) {
		var reasons []string
		for _, f := range all {
			why, err := f(c)
			if err != nil {
				return "", err
			}
			reasons = append(reasons, why)
		}
		return strings.Join(reasons, "; "), nil
	}
}

// trust returns a TLS configuration that trusts the cluster's CAs, including
// the one of the kubelets.
func (c *cluster) trust() (*tls.Config, error) {
	pool := x509.NewCertPool()
	for _, name := range []string{"ca.crt", "kubelet-ca.crt"} {
		ca, err := os.ReadFile(c.path("pki", name))
		if err != nil {
			return nil, err
		}
		if !pool.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("pki/%s holds no certificate", name)
		}
	}
	return &tls.Config{RootCAs: pool}, nil
}

// refuses requires a server to answer a path with 401 or 403 to a client with
// that certificate below pki/; "" means no certificate.
func refuses(server func(*cluster) string, path, certificate string) func(*cluster) (string, error) {
	return func(c *cluster) (string, error) {
		config, err := c.trust()
		if err != nil {
			return "", err
		}
		if certificate != "" {
			pair, err := tls.LoadX509KeyPair(c.path("pki", certificate+".crt"), c.path("pki", certificate+".key"))
			if err != nil {
				return "", err
			}
			config.Certificates = []tls.Certificate{pair}
		}
		client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		resp, err := client.Get("https://" + server(c) + path)
		if err != nil {
			return "", err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
			return "", fmt.Errorf("%s answers %s", path, resp.Status)
		}
		return fmt.Sprintf("%s answers %s", path, resp.Status), nil
	}
}

// modernTLS requires a server to refuse old TLS versions and weak cipher
// suites.
func modernTLS(server func(*cluster) string) func(*cluster) (string, error) {
	return func(c *cluster) (string, error) {
		weak := []uint16{tls.TLS_RSA_WITH_RC4_128_SHA, tls.TLS_RSA_WITH_3DES_EDE_CBC_SHA, tls.TLS_RSA_WITH_AES_128_CBC_SHA, tls.TLS_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_RSA_WITH_RC4_128_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256}
		for what, ask := range map[string]func(*tls.Config){
			"TLS 1.1":     func(t *tls.Config) { t.MinVersion, t.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 },
			"weak suites": func(t *tls.Config) { t.MaxVersion, t.CipherSuites = tls.VersionTLS12, weak },
		} {
			config, err := c.trust()
			if err != nil {
				return "", err
			}
			ask(config)
			conn, err := tls.Dial("tcp", server(c), config)
			if err == nil {
				conn.Close()
				return "", fmt.Errorf("it speaks %s", what)
			}
			var refused *tls.CertificateVerificationError
			var alert tls.AlertError
			if errors.As(err, &refused) || !errors.As(err, &alert) && !strings.Contains(err.Error(), "tls:") {
				return "", fmt.Errorf("ask it for %s: %w", what, err)
			}
		}
		return "refuses TLS 1.1 and weak suites", nil
	}
}
