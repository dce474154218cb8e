"""Looking at a sweep: pictures of it, as files and as one HTML page."""

from ahbm_jax.report.sweep_view.album import Pictures, pictures, report_page

__all__ = ["Pictures", "pictures", "report_page"]
