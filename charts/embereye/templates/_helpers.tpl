{{- define "embereye.name" -}}
{{- if contains "embereye" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-embereye" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "embereye.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "embereye.hub" -}}
{{ include "embereye.name" . }}-hub.{{ .Release.Namespace }}.svc:{{ .Values.hub.service.grpcPort }}
{{- end }}

{{/* Arguments: root, component */}}
{{- define "embereye.selector" -}}
app.kubernetes.io/name: embereye
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "embereye.labels" -}}
{{ include "embereye.selector" . }}
app.kubernetes.io/part-of: embereye
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The namespaces whose fleets the operator looks after, as JSON under "names"; none: all. */}}
{{- define "embereye.namespaces" -}}
{{- $namespaces := .Values.operator.namespaces }}
{{- if and (not $namespaces) .Values.operator.namespaced }}{{- $namespaces = list .Release.Namespace }}{{- end }}
{{- dict "names" $namespaces | toJson }}
{{- end }}

{{/* PodSecurity "restricted", and a root file system nobody can write to. */}}
{{- define "embereye.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* Nobody waits five minutes for a node that is gone. What a user says about the same taints counts more. */}}
{{- define "embereye.tolerations" -}}
{{- $own := . }}
{{- range $key, $seconds := dict "node.kubernetes.io/not-ready" 30 "node.kubernetes.io/unreachable" 5 }}
{{- $said := false }}
{{- range $own }}{{- if or (not .key) (eq .key $key) }}{{- $said = true }}{{- end }}{{- end }}
{{- if not $said }}
- {key: {{ $key }}, operator: Exists, effect: NoExecute, tolerationSeconds: {{ $seconds }}}
{{- end }}
{{- end }}
{{- range $own }}
- {{ toJson . }}
{{- end }}
{{- end }}

{{- define "embereye.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
