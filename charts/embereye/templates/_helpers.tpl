{{- define "embereye.name" -}}
{{- if contains "embereye" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-embereye" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "embereye.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "embereye.hub" -}}
{{ include "embereye.name" . }}-hub.{{ .Release.Namespace }}.svc:{{ .Values.hub.service.grpcPort }}
{{- end }}

{{/* The Secret with the token of the hub's admin. */}}
{{- define "embereye.adminSecret" -}}
{{ .Values.hub.adminToken.existingSecret | default (printf "%s-hub-admin" (include "embereye.name" .)) }}
{{- end }}

{{/* What people and programs call the hub by over TLS with a certificate of the operator's authority. */}}
{{- define "embereye.hubNames" -}}
{{- $name := printf "%s-hub" (include "embereye.name" .) }}
{{- $service := printf "%s.%s" $name .Release.Namespace }}
{{- $own := list $name $service (printf "%s.svc" $service) (printf "%s.svc.cluster.local" $service) "localhost" "127.0.0.1" "::1" }}
{{- range .Values.hub.tls.names }}
{{- if hasSuffix "embereye.internal" . }}
{{- fail (printf "tls.names: %s ends as names of our own processes do, which no other certificate may have: choose another name, or a certificate of your own in tls.existingSecret" .) }}
{{- end }}
{{- end }}
{{- concat $own .Values.hub.tls.names | uniq | join "," }}
{{- end }}

{{/* The Secret with the certificate that people are shown. */}}
{{- define "embereye.hubTlsSecret" -}}
{{ .Values.hub.tls.existingSecret | default (printf "%s-hub-identity" (include "embereye.name" .)) }}
{{- end }}

{{/* Of that Secret, what commands trust: its authority, or the certificate itself where it comes without. */}}
{{- define "embereye.hubTrusted" -}}
{{ ternary "tls.crt" "ca.crt" (not (empty .Values.hub.tls.existingSecret)) }}
{{- end }}

{{/* Where shards and the operator call the hub. */}}
{{- define "embereye.hubControl" -}}
{{ include "embereye.name" . }}-hub-control.{{ .Release.Namespace }}.svc:50053
{{- end }}

{{/* Two maps as one; unlike mergeOverwrite, what is empty or false in `over` counts, too. JSON. Arguments: base, over */}}
{{- define "embereye.merged" -}}
{{- $merged := deepCopy .base }}
{{- range $key, $value := .over }}
{{- if and (kindIs "map" $value) (kindIs "map" (get $merged $key)) }}
{{- $value = include "embereye.merged" (dict "base" (get $merged $key) "over" $value) | fromJson }}
{{- end }}
{{- $_ := set $merged $key $value }}
{{- end }}
{{- toJson $merged }}
{{- end }}

{{/* What the hub `name` of `hubs` is rendered with, as JSON: as if it were the hub of a release that is called so. It is as
     the release's own, but for what tenants must not share. Arguments: root, name, hub */}}
{{- define "embereye.hubContext" -}}
{{- $release := printf "%s-%s" (include "embereye.name" .root) .name }}
{{- if gt (len $release) 40 }}
{{- fail (printf "hubs.%s: with the release's name it is called %s, which is longer than 40 characters: choose a shorter name" .name $release) }}
{{- end }}
{{- $unshared := dict "adminToken" (dict "existingSecret" "" "key" "token") "allowedHosts" list "webhooks" list "replicas" 1
  "tls" (dict "existingSecret" "" "names" list) "database" (dict "dsnSecret" (dict "name" "" "key" "dsn"))
  "oidc" (dict "issuer" "" "clientId" "" "clientSecret" (dict "existingSecret" "") "roles" (dict "viewer" list "operator" list "admin" list))
  "nats" (dict "servers" list "stream" "" "credentials" (dict "existingSecret" "") "tls" (dict "existingSecret" ""))
  "mqtt" (dict "broker" "" "prefix" (printf "%s-%s" .root.Values.hub.mqtt.prefix .name) "credentials" (dict "existingSecret" "") "tls" (dict "existingSecret" ""))
  "persistence" (dict "existingClaim" "") "extraArgs" list "extraEnv" list }}
{{- $own := include "embereye.merged" (dict "base" .root.Values.hub "over" $unshared) | fromJson }}
{{- $own = include "embereye.merged" (dict "base" $own "over" (.hub.hub | default dict)) | fromJson }}
{{- $values := set (deepCopy .root.Values) "hub" $own }}
{{- dict "Values" $values "Release" (set (deepCopy .root.Release) "Name" $release) | toJson }}
{{- end }}

{{/* What the operator is told of `hubs`, as JSON. */}}
{{- define "embereye.hubs" -}}
{{- $told := list }}
{{- range $name, $hub := .Values.hubs }}
{{- $context := merge (include "embereye.hubContext" (dict "root" $ "name" $name "hub" $hub) | fromJson) (dict "Chart" $.Chart) }}
{{- $one := dict "name" $name "address" (include "embereye.hubControl" $context) "process" (printf "%s-hub" (include "embereye.name" $context)) }}
{{- $one = set $one "namespaces" ($hub.namespaces | default list) }}
{{- if and $context.Values.hub.tls.enabled (not $context.Values.hub.tls.existingSecret) }}
{{- $one = set $one "names" (include "embereye.hubNames" $context | splitList ",") }}
{{- end }}
{{- $told = append $told $one }}
{{- end }}
{{- toJson $told }}
{{- end }}

{{/* Arguments: root, component */}}
{{- define "embereye.selector" -}}
app.kubernetes.io/name: embereye
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "embereye.ownLabels" -}}
{{ include "embereye.selector" . }}
app.kubernetes.io/part-of: embereye
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Of one name the chart's own counts, by which network policies find its pods. `more` are those by which others find an
     object, and count most. Arguments: root, component, more */}}
{{- define "embereye.labels" -}}
{{- $own := include "embereye.ownLabels" . | fromYaml }}
{{- mergeOverwrite (dict) (.root.Values.additionalLabels | default dict) $own (.more | default dict) | toYaml }}
{{- end }}

{{/* The namespaces whose fleets the operator looks after, as JSON under "names"; none: all. */}}
{{- define "embereye.namespaces" -}}
{{- $namespaces := .Values.operator.namespaces }}
{{- if .Values.operator.clusterWide }}
{{- if $namespaces }}{{ fail "operator.clusterWide and operator.namespaces: say one of them" }}{{ end }}
{{- else if not $namespaces }}
{{- $namespaces = list .Release.Namespace }}
{{- end }}
{{- dict "names" $namespaces | toJson }}
{{- end }}

{{/* The number of the user that everything runs as; empty: the cluster says whom. */}}
{{- define "embereye.user" -}}
{{- $user := toString .Values.runAs }}
{{- if eq $user "auto" }}
{{- ternary "" "65532" (.Capabilities.APIVersions.Has "security.openshift.io/v1") }}
{{- else if ne $user "none" }}
{{- int64 .Values.runAs }}
{{- end }}
{{- end }}

{{/* PodSecurity "restricted", and a root file system nobody can write to. */}}
{{- define "embereye.podSecurity" -}}
runAsNonRoot: true
{{- with include "embereye.user" . }}
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
{{- end }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* Nobody waits five minutes for a node that is gone. What a user says about the same taints counts more. */}}
{{- define "embereye.tolerations" -}}
{{- $own := . }}
{{- range $key, $seconds := dict "node.kubernetes.io/not-ready" 30 "node.kubernetes.io/unreachable" 5 }}
{{- $said := false }}
{{- range $own }}
{{- if and (or (not .key) (eq .key $key)) (or (not .effect) (eq .effect "NoExecute")) }}{{- $said = true }}{{- end }}
{{- end }}
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

{{/* Of what a Prometheus selects by its labels. */}}
{{- define "embereye.monitoringLabels" -}}
{{ include "embereye.labels" (merge (dict "more" .root.Values.monitoring.labels) .) }}
{{- end }}

{{/* Where the runbooks are, without the slash in front of an alert's name. */}}
{{- define "embereye.runbooks" -}}
{{- $named := list }}
{{- range $host := .Values.hub.allowedHosts }}
{{- if not (contains "*" $host) }}
{{- $named = append $named (printf "https://%s/runbooks" $host) }}
{{- end }}
{{- end }}
{{- coalesce .Values.monitoring.rules.runbookUrl (first $named) "http://127.0.0.1:8080/runbooks" | trimSuffix "/" }}
{{- end }}

{{/* What is missed where it is not scraped: the pods of operator or hub by the label that tells hubs of one release apart, and
     releases of one namespace. Arguments: root, component */}}
{{- define "embereye.absent" -}}
{{- $up := printf "up{job=\"embereye-%s\",namespace=%q" .component .root.Release.Namespace }}
{{- if or .root.Values.hubs (eq .root.Values.monitoring.scrape "podMonitors") }}
{{- $instances := list .root.Release.Name }}
{{- if eq .component "hub" }}
{{- range $hub, $_ := .root.Values.hubs }}
{{- $instances = append $instances (printf "%s-%s" (include "embereye.name" $.root) $hub) }}
{{- end }}
{{- end }}
{{- range $at, $instance := $instances }}
{{- if $at }} or {{ end }}absent({{ $up }},app_kubernetes_io_instance={{ quote $instance }}})
{{- end }}
{{- else }}absent({{ $up }}})
{{- end }}
{{- end }}

{{/* An expression that looks at operator and hub of any release, for this one. Arguments: root, expr */}}
{{- define "embereye.ours" -}}
{{- $expr := .expr }}
{{- range $component := list "operator" "hub" }}
{{- $all := printf "up{job=\"embereye-%s\"}" $component }}
{{- $missed := include "embereye.absent" (dict "root" $.root "component" $component) }}
{{- $ours := printf "up{job=\"embereye-%s\",namespace=%q}" $component $.root.Release.Namespace }}
{{- $expr = $expr | replace (printf "absent(%s)" $all) $missed | replace $all $ours }}
{{- end }}
{{- $expr }}
{{- end }}

{{/* The rules of this release. Their texts are templates of Prometheus', so that they must not be executed here. */}}
{{- define "embereye.rules" -}}
{{- $rules := .Values.monitoring.rules }}
{{- $groups := list }}
{{- range $group := (.Files.Get "files/rules/prometheus.yaml" | fromYaml).groups }}
{{- $kept := list }}
{{- range $rule := $group.rules }}
{{- if not (has $rule.alert $rules.disabled) }}
{{- $_ := set $rule "expr" (include "embereye.ours" (dict "root" $ "expr" $rule.expr)) }}
{{- if $rule.alert }}
{{- $_ := set $rule "labels" (merge $rule.labels ($rules.labels | default dict)) }}
{{- $_ := set $rule.annotations "runbook_url" (printf "%s/%s" (include "embereye.runbooks" $) $rule.alert) }}
{{- end }}
{{- $kept = append $kept $rule }}
{{- end }}
{{- end }}
{{- if $kept }}
{{- $groups = append $groups (merge (dict "rules" $kept) $group) }}
{{- end }}
{{- end }}
{{- toYaml (dict "groups" $groups) }}
{{- end }}

{{/* The same for Grafana, which tells rules apart by their uid, of 40 characters at most, and by folder and title. */}}
{{- define "embereye.grafanaRules" -}}
{{- $rules := .Values.monitoring.rules }}
{{- $release := printf "%s %s" .Release.Namespace .Release.Name }}
{{- $file := .Files.Get "files/rules/grafana.yaml" | fromYaml }}
{{- range $group := $file.groups }}
{{- $kept := list }}
{{- range $rule := $group.rules }}
{{- if not (has $rule.title $rules.disabled) }}
{{- $_ := set $rule "labels" (merge $rule.labels ($rules.labels | default dict)) }}
{{- $_ := set $rule.annotations "runbook_url" (printf "%s/%s" (include "embereye.runbooks" $) $rule.title) }}
{{- $_ := set $rule "uid" (printf "%s-%s" (sha256sum $release | trunc 12) (trimPrefix "ember-eye-" $rule.uid)) }}
{{- $asked := first $rule.data }}
{{- $_ := set $asked "datasourceUid" $.Values.monitoring.grafanaAlerts.datasourceUid }}
{{- $_ := set $asked.model "expr" (include "embereye.ours" (dict "root" $ "expr" $asked.model.expr)) }}
{{- $kept = append $kept $rule }}
{{- end }}
{{- end }}
{{- $_ := set $group "rules" $kept }}
{{- $_ := set $group "name" (printf "%s %s" $group.name $release) }}
{{- $_ := set $group "folder" (printf "%s %s" $group.folder $release) }}
{{- end }}
{{- toYaml $file }}
{{- end }}

{{/* For a Prometheus that looks for annotations. Arguments: root, port */}}
{{- define "embereye.scrapeAnnotations" -}}
{{- if and .root.Values.monitoring.enabled (eq .root.Values.monitoring.scrape "annotations") }}
annotations:
  prometheus.io/scrape: "true"
  prometheus.io/path: /metrics
  prometheus.io/port: {{ .port | quote }}
{{- end }}
{{- end }}

{{/* Arguments: root, extra */}}
{{- define "embereye.environment" -}}
{{- $environment := .extra | default list }}
{{- if ne .root.Values.logFormat "text" }}
{{- $environment = prepend $environment (dict "name" "EMBEREYE_LOG_FORMAT" "value" .root.Values.logFormat) }}
{{- end }}
{{- with .root.Values.tracing.endpoint }}
{{- $environment = append $environment (dict "name" "OTEL_EXPORTER_OTLP_ENDPOINT" "value" .) }}
{{- end }}
{{- with $environment }}
env: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What `embereye hub --webhooks` reads: hub.webhooks, with the files that their Secrets become. */}}
{{- define "embereye.webhooks" -}}
{{- $declared := list }}
{{- range $webhook := .Values.hub.webhooks }}
{{- $one := omit $webhook "urlFrom" "secretFrom" "tokenFrom" }}
{{- range $field := list "url" "secret" "token" }}
{{- if hasKey $webhook (printf "%sFrom" $field) }}
{{- $_ := set $one (printf "%sFile" $field) (printf "/etc/embereye/webhooks/%s.%s" $webhook.name $field) }}
{{- end }}
{{- end }}
{{- $declared = append $declared $one }}
{{- end }}
{{- dict "webhooks" $declared | toJson }}
{{- end }}
