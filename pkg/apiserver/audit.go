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

// auditOptions are the audit flags, bound to the configurations of the auditor's
// backends.
type auditOptions struct {
	policyFile string
	policy     *audit.Policy // set by parse; nil: no policy file

	file   lumberjack.Logger // its name is --audit-log-path
	format string
	log    audit.BackendConfig

	webhookFile    string
	initialBackoff time.Duration
	throttle       bool
	webhook        audit.BackendConfig
}

func (o *auditOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.policyFile, "audit-policy-file", "", "file with the audit policy (audit.k8s.io/v1 Policy); without it no events are recorded")

	f.StringVar(&o.file.Filename, "audit-log-path", "", "file to write audit events to, one line of JSON each; -: standard output; empty: none")
	f.IntVar(&o.file.MaxAge, "audit-log-maxage", 366, "maximum number of days to keep old audit log files; 0: no limit")
	f.IntVar(&o.file.MaxBackups, "audit-log-maxbackup", 100, "maximum number of old audit log files to keep; 0: no limit")
	f.IntVar(&o.file.MaxSize, "audit-log-maxsize", 100, "maximum size of an audit log file in megabytes before it is rotated")
	f.BoolVar(&o.file.Compress, "audit-log-compress", false, "compress old audit log files by gzip")
	f.StringVar(&o.format, "audit-log-format", "json", "format of the audit log; only json is supported")
	o.log = audit.BackendConfig{Name: "log", BatchSize: 400}
	backendFlags(f, "log", &o.log)

	f.StringVar(&o.webhookFile, "audit-webhook-config-file", "", "kubeconfig file of the audit webhook; empty: none")
	f.DurationVar(&o.initialBackoff, "audit-webhook-initial-backoff", 10*time.Second, "time to wait before the first retry of a failed request to the audit webhook")
	o.webhook = audit.BackendConfig{Name: "webhook"}
	backendFlags(f, "webhook", &o.webhook)
	f.IntVar(&o.webhook.BatchSize, "audit-webhook-batch-max-size", 400, "maximum number of events in a batch; only in mode batch")
	f.DurationVar(&o.webhook.BatchWait, "audit-webhook-batch-max-wait", 30*time.Second, "maximum time to wait for a batch to fill; only in mode batch")
	f.BoolVar(&o.throttle, "audit-webhook-batch-throttle-enable", true, "limit the rate of batches; only in mode batch")
	f.Float64Var(&o.webhook.QPS, "audit-webhook-batch-throttle-qps", 10, "maximum average number of batches per second; only in mode batch")
	f.IntVar(&o.webhook.Burst, "audit-webhook-batch-throttle-burst", 15, "maximum number of batches sent at the same moment; only in mode batch")
}

func backendFlags(f *pflag.FlagSet, name string, b *audit.BackendConfig) {
	f.StringVar(&b.Mode, "audit-"+name+"-mode", audit.ModeBatch, "batch: requests do not wait for the audit "+name+", and events are lost when it falls behind; blocking: requests wait; blocking-strict: requests also fail when it fails")
	f.IntVar(&b.BufferSize, "audit-"+name+"-batch-buffer-size", 10000, "maximum number of queued events of the audit "+name+"; further events are lost; only in mode batch")
}

// parse reads and validates the policy file and the flags. Its error names
// every problem.
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
		errs = append(errs, fmt.Errorf("--audit-log-format=%s: only json is supported", o.format))
	}
	if o.file.MaxAge < 0 || o.file.MaxBackups < 0 || o.file.MaxSize <= 0 {
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

// build returns the auditor, or nil if there is no policy or no backend. close
// closes the audit log; it is never nil.
func (o *auditOptions) build(s *scheme.Scheme, r prometheus.Registerer, log *slog.Logger) (a *audit.Auditor, close func() error, err error) {
	close = func() error { return nil }
	cfg := audit.Config{Policy: o.policy, Scheme: s, Registry: r, Log: log}
	if o.policy == nil {
		if o.file.Filename != "" || o.webhookFile != "" {
			log.Warn("audit logging disabled: no --audit-policy-file")
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
	if o.file.Filename != "" {
		var out io.Writer
		if out, close, err = o.openFile(); err != nil {
			return nil, close, fmt.Errorf("--audit-log-path: %w", err)
		}
		o.log.Backend = &audit.LogBackend{Out: out}
		cfg.Backends = append(cfg.Backends, o.log)
	}
	if len(cfg.Backends) == 0 {
		log.Warn("audit logging disabled: neither --audit-log-path nor --audit-webhook-config-file")
		return nil, close, nil
	}
	return audit.New(cfg), close, nil
}

// service returns a backend for the webhook of --audit-webhook-config-file.
func (o *auditOptions) service() (*audit.WebhookBackend, error) {
	service, err := webhook.Load(o.webhookFile)
	if err != nil {
		return nil, err
	}
	return audit.NewWebhook(service, o.initialBackoff)
}

// openFile returns the writer of the audit log and a function that closes it. It
// opens the file once, with mode 0600, so that a path that cannot be written
// fails at the start.
func (o *auditOptions) openFile() (io.Writer, func() error, error) {
	none := func() error { return nil }
	if o.file.Filename == "-" {
		return os.Stdout, none, nil
	}
	f, err := os.OpenFile(o.file.Filename, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, none, err
	}
	if err := f.Close(); err != nil {
		return nil, none, err
	}
	return &o.file, o.file.Close, nil
}
