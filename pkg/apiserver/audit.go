package apiserver

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"gopkg.in/natefinch/lumberjack.v2"

	"podium/pkg/apiserver/audit"
	"podium/pkg/apiserver/webhook"
	"podium/pkg/scheme"
)

// auditOptions are the flags of the audit.
type auditOptions struct {
	policyFile string
	policy     *audit.Policy // what parse has read

	path       string
	maxAge     int
	maxBackups int
	maxSize    int
	compress   bool
	format     string
	log        audit.BackendConfig

	webhookFile    string
	initialBackoff time.Duration
	throttle       bool
	webhook        audit.BackendConfig
}

func (o *auditOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.policyFile, "audit-policy-file", "", "file with the audit policy (audit.k8s.io/v1 Policy); without one nothing is recorded")

	f.StringVar(&o.path, "audit-log-path", "", "file that audit events are written to, a line of JSON each; -: standard output; empty: none")
	f.IntVar(&o.maxAge, "audit-log-maxage", 366, "how many days old audit log files are kept; 0: for ever")
	f.IntVar(&o.maxBackups, "audit-log-maxbackup", 100, "how many old audit log files are kept; 0: all")
	f.IntVar(&o.maxSize, "audit-log-maxsize", 100, "how many megabytes an audit log file gets before a new one is begun")
	f.BoolVar(&o.compress, "audit-log-compress", false, "compress old audit log files by gzip")
	f.StringVar(&o.format, "audit-log-format", "json", "how events look in the audit log: only json is known")
	o.log = audit.BackendConfig{Name: "log", BatchSize: 400}
	backendFlags(f, "log", &o.log)

	f.StringVar(&o.webhookFile, "audit-webhook-config-file", "", "kubeconfig of the service that audit events are sent to; empty: none")
	f.DurationVar(&o.initialBackoff, "audit-webhook-initial-backoff", 10*time.Second, "how long to wait before what the audit webhook has failed to take is sent again")
	o.webhook = audit.BackendConfig{Name: "webhook"}
	backendFlags(f, "webhook", &o.webhook)
	f.IntVar(&o.webhook.BatchSize, "audit-webhook-batch-max-size", 400, "how many events are sent to the audit webhook at a time; in mode batch only")
	f.DurationVar(&o.webhook.BatchWait, "audit-webhook-batch-max-wait", 30*time.Second, "how long to wait for so many; in mode batch only")
	f.BoolVar(&o.throttle, "audit-webhook-batch-throttle-enable", true, "bound how often the audit webhook is asked; in mode batch only")
	f.Float64Var(&o.webhook.QPS, "audit-webhook-batch-throttle-qps", 10, "how often a second; in mode batch only")
	f.IntVar(&o.webhook.Burst, "audit-webhook-batch-throttle-burst", 15, "how often in a row when it was not asked for a while; in mode batch only")
}

func backendFlags(f *pflag.FlagSet, name string, b *audit.BackendConfig) {
	f.StringVar(&b.Mode, "audit-"+name+"-mode", audit.ModeBatch, "batch: requests do not wait for the audit "+name+", events are lost when it falls behind; blocking: they wait; blocking-strict: and are refused when it fails")
	f.IntVar(&b.BufferSize, "audit-"+name+"-batch-buffer-size", 10000, "how many events may wait for the audit "+name+" before new ones are lost; in mode batch only")
}

// parse reads the policy; all problems are told at once.
func (o *auditOptions) parse() error {
	var errs []error
	for _, b := range []*audit.BackendConfig{&o.log, &o.webhook} {
		if modes := []string{audit.ModeBatch, audit.ModeBlocking, audit.ModeBlockingStrict}; !slices.Contains(modes, b.Mode) {
			errs = append(errs, fmt.Errorf("--audit-%s-mode=%s is none of %s", b.Name, b.Mode, strings.Join(modes, ", ")))
		}
		if b.BufferSize <= 0 || b.BatchSize <= 0 {
			errs = append(errs, fmt.Errorf("--audit-%s-batch-buffer-size and -max-size must be positive", b.Name))
		}
	}
	if o.throttle && (o.webhook.QPS <= 0 || o.webhook.Burst <= 0) {
		errs = append(errs, errors.New("--audit-webhook-batch-throttle-qps and -burst must be positive"))
	}
	if o.format != "json" {
		errs = append(errs, fmt.Errorf("--audit-log-format=%s: only json is known", o.format))
	}
	if o.maxAge < 0 || o.maxBackups < 0 || o.maxSize <= 0 {
		errs = append(errs, errors.New("--audit-log-maxage and -maxbackup must not be negative, -maxsize must be positive"))
	}
	if o.policyFile == "" {
		return errors.Join(errs...)
	}
	data, err := os.ReadFile(o.policyFile)
	if err == nil {
		if o.policy, err = audit.ParsePolicy(data); err != nil {
			err = fmt.Errorf("%s: %w", o.policyFile, err)
		}
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("--audit-policy-file: %w", err))
	}
	return errors.Join(errs...)
}

// build makes the auditor, nil if nothing is to be recorded. close ends the log.
func (o *auditOptions) build(s *scheme.Scheme, r prometheus.Registerer, log *slog.Logger) (a *audit.Auditor, close func() error, err error) {
	close = func() error { return nil }
	cfg := audit.Config{Policy: o.policy, Scheme: s, Registry: r, Log: log}
	if o.policy == nil {
		if o.path != "" || o.webhookFile != "" {
			log.Warn("nothing is audited: there is no --audit-policy-file")
		}
		return nil, close, nil
	}
	if o.webhookFile != "" {
		backend, err := o.service()
		if err != nil {
			return nil, close, fmt.Errorf("--audit-webhook-config-file: %w", err)
		}
		o.webhook.Backend = backend
		if !o.throttle {
			o.webhook.QPS = 0
		}
		cfg.Backends = append(cfg.Backends, o.webhook)
	}
	if o.path != "" {
		var out io.Writer
		if out, close, err = o.file(); err != nil {
			return nil, close, fmt.Errorf("--audit-log-path: %w", err)
		}
		o.log.Backend = &audit.LogBackend{Out: out}
		cfg.Backends = append(cfg.Backends, o.log)
	}
	if len(cfg.Backends) == 0 {
		log.Warn("nothing is audited: there is neither --audit-log-path nor --audit-webhook-config-file")
		return nil, close, nil
	}
	return audit.New(cfg), close, nil
}

func (o *auditOptions) service() (*audit.WebhookBackend, error) {
	service, err := webhook.Load(o.webhookFile)
	if err != nil {
		return nil, err
	}
	return audit.NewWebhook(service, o.initialBackoff)
}

// file opens the log, so that one that cannot be written is told at the start.
// Only its owner may read it.
func (o *auditOptions) file() (io.Writer, func() error, error) {
	none := func() error { return nil }
	if o.path == "-" {
		return os.Stdout, none, nil
	}
	f, err := os.OpenFile(o.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, none, err
	}
	if err := f.Close(); err != nil {
		return nil, none, err
	}
	out := &lumberjack.Logger{Filename: o.path, MaxAge: o.maxAge, MaxBackups: o.maxBackups, MaxSize: o.maxSize, Compress: o.compress}
	return out, out.Close, nil
}
