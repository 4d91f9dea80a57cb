"""The page of `levelhead app` as a Space of Hugging Face: these three files are the whole Space."""

from levelhead.cli.browser import build, serve

demo = build(local=False)

if __name__ == "__main__":
    serve(demo, host="0.0.0.0")
