// The sounds of the siren, made by Web Audio: no file is loaded, and a sound that has begun needs no timer.

const HERTZ = 520;      // a square wave of this pitch wakes more people than a high tone (NFPA 72)
const EDGE_PER_S = 200; // a tone rises and falls within 5 ms, so that it does not click
const QUIET = 0.15;     // loudness below a voice

// Tones from one time to another, in seconds, within a span. The siren has the temporal-three pattern of ISO 8201.
const SIREN = { seconds: 4, tones: [[0, 0.5], [1, 1.5], [2, 2.5]], hertz: HERTZ };
const CHIME = { seconds: 1.2, tones: [[0, 0.25], [0.35, 0.6]], hertz: 660 };
const TROUBLE = { seconds: 1, tones: [[0, 0.7]], hertz: 220 };

export class Sound {
  constructor() {
    this.context = new AudioContext();
    this.volume = this.context.createGain();
    this.volume.connect(this.context.destination);
    this.buffers = new Map();
    this.siren = null;
    this.seen = 0;     // the context's time at the latest check
    this.runs = false;
  }

  /** Ask the browser to let it sound. It refuses until somebody has clicked or typed on the page. */
  resume() { return this.context.resume().catch(() => {}); }

  /** True if sound leaves the page: the browser permits it, and its clock advances. Call it at an interval. */
  check() {
    const { state, currentTime } = this.context;
    this.runs = state === "running" && currentTime > this.seen;
    this.seen = currentTime;
    return this.runs;
  }

  start() { this.siren ??= this.play(SIREN, true); }

  stop() {
    this.siren?.stop();
    this.siren = null;
    this.loud();
  }

  chime() { this.play(CHIME); }

  trouble() { this.play(TROUBLE); }

  /** Let a voice be heard above the siren. */
  soften() { this.volume.gain.setTargetAtTime(QUIET, this.context.currentTime, 0.05); }

  loud() { this.volume.gain.setTargetAtTime(1, this.context.currentTime, 0.05); }

  play(sound, loop = false) {
    if (!this.buffers.has(sound)) this.buffers.set(sound, this.draw(sound));
    const source = this.context.createBufferSource();
    source.buffer = this.buffers.get(sound);
    source.loop = loop;
    source.connect(this.volume);
    source.start();
    return source;
  }

  draw({ seconds, tones, hertz }) {
    const rate = this.context.sampleRate, buffer = this.context.createBuffer(1, seconds * rate, rate), samples = buffer.getChannelData(0);
    for (const [from, until] of tones) {
      for (let index = Math.ceil(from * rate); index < until * rate; index += 1) {
        const at = index / rate, edge = Math.min(1, (at - from) * EDGE_PER_S, (until - at) * EDGE_PER_S);
        // A square wave, without the overtones that would fold back.
        for (const overtone of [1, 3, 5, 7]) samples[index] += (edge * Math.sin(2 * Math.PI * hertz * overtone * at)) / overtone;
      }
    }
    return buffer;
  }
}
