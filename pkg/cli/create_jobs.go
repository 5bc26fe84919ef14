package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func batch(kind string) schema.GroupVersionKind { return batchv1.SchemeGroupVersion.WithKind(kind) }

func newCreateJob(f *Factory, run runCreateFunc) *cobra.Command {
	var image, from string
	var command []string
	var cmd *cobra.Command
	cmd = creator(f, run, &cobra.Command{
		Use: "job NAME --image=IMAGE [--from=cronjob/NAME] [-- COMMAND ARG...]", Short: "Create a job with the specified name",
		Example: `  podium create job pi --image=perl:5.34 -- perl -Mbignum=bpi -wle 'print bpi(2000)'
  podium create job test-job --from=cronjob/a-cronjob`,
	}, func(name, ns string) (runtime.Object, schema.GroupVersionKind, error) {
		switch {
		case (image == "") == (from == ""):
			return nil, batch("Job"), errors.New("either --image or --from must be specified")
		case from != "" && len(command) > 0:
			return nil, batch("Job"), errors.New("cannot specify --from and command")
		case from != "":
			j, err := jobFrom(cmd.Context(), f, from, ns)
			if err == nil {
				j.Name = name
			}
			return j, batch("Job"), err
		}
		return &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec:       jobSpec(name, image, corev1.RestartPolicyNever, command),
		}, batch("Job"), nil
	})
	takesCommand(cmd, &command)
	cmd.Flags().StringVar(&image, "image", "", "image name to run")
	cmd.Flags().StringVar(&from, "from", "", "resource to create the job from; only cronjob is supported")
	return cmd
}

func jobSpec(name, image string, restart corev1.RestartPolicy, command []string) batchv1.JobSpec {
	return batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: restart,
		Containers:    []corev1.Container{{Name: name, Image: image, Command: command}},
	}}}
}

// jobFrom returns a Job, without a name, of the template of a CronJob: cronjob/NAME.
func jobFrom(ctx context.Context, f *Factory, from, ns string) (*batchv1.Job, error) {
	word, name, ok := strings.Cut(from, "/")
	if !ok || name == "" {
		return nil, fmt.Errorf("--from=%s: must be cronjob/NAME", from)
	}
	c, err := f.Cluster()
	if err != nil {
		return nil, err
	}
	kind, err := c.Find(ctx, word)
	if err != nil {
		return nil, err
	}
	if kind.Group != batchv1.GroupName || kind.Kind != "CronJob" {
		return nil, fmt.Errorf("from must be an existing cronjob, not %s", kind.Kind)
	}
	obj, err := c.Get(ctx, kind, ns, name)
	if err != nil {
		return nil, err
	}
	var cron batchv1.CronJob
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &cron); err != nil {
		return nil, fmt.Errorf("read cronjob %s: %w", name, err)
	}
	template := &cron.Spec.JobTemplate
	yes := true
	annotations := map[string]string{"cronjob.kubernetes.io/instantiate": "manual"}
	maps.Copy(annotations, template.Annotations)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Labels: template.Labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "CronJob", Name: cron.Name, UID: cron.UID, Controller: &yes,
			}},
		},
		Spec: template.Spec,
	}, nil
}

func newCreateCronJob(f *Factory, run runCreateFunc) *cobra.Command {
	var image, schedule, restart string
	var command []string
	cmd := creator(f, run, &cobra.Command{
		Use: "cronjob NAME --image=IMAGE --schedule='0/5 * * * ?' [-- COMMAND ARG...]", Aliases: []string{"cj"}, Short: "Create a cron job with the specified name",
	}, func(name, ns string) (runtime.Object, schema.GroupVersionKind, error) {
		return &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec: batchv1.CronJobSpec{Schedule: schedule, JobTemplate: batchv1.JobTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       jobSpec(name, image, corev1.RestartPolicy(restart), command),
			}},
		}, batch("CronJob"), nil
	})
	takesCommand(cmd, &command)
	cmd.Flags().StringVar(&image, "image", "", "image name to run")
	cmd.Flags().StringVar(&schedule, "schedule", "", "schedule in the cron format at which the job is run")
	cmd.Flags().StringVar(&restart, "restart", string(corev1.RestartPolicyOnFailure), "restart policy of the job: OnFailure or Never")
	_ = cmd.MarkFlagRequired("image")
	_ = cmd.MarkFlagRequired("schedule")
	return cmd
}
